"""Speech: an encoder-decoder learns the transcript of a recording; the word error rate selects the model."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar

import numpy as np

from heedful.audio.log_mel import FRAMES_PER_SECOND, FeatureFrames
from heedful.config import Family, Preset, RunConfig
from heedful.config.presets import CONTINUED_TRAINING, SECONDS, Sections, preset_for, speech_preset
from heedful.data.audio_batch import SpecAugment, collate_audio, pad_with_silence
from heedful.data.audio_corpus import AudioCorpus, AudioForm, AudioPairs, prepare_audio
from heedful.data.batch import Batch
from heedful.data.bucketing import micro_batches, plan_batches
from heedful.data.corpus import CorpusCache
from heedful.errors import SettingError
from heedful.evaluation.word_errors import evaluate_speech
from heedful.inference.transcriber import Transcriber
from heedful.inference.whisper_tokens import WhisperTokens
from heedful.ops.cross_entropy import Loss
from heedful.storage.folder import ModelFolder
from heedful.training.losses import speech_loss
from heedful.training.run_report import Column
from heedful.training.tasks.task import (
    Indices,
    MicroBatches,
    Progress,
    Scores,
    Task,
    device_of,
    resolved_model,
    vocabulary_settings,
    with_weight_decay,
)
from heedful.training.time_budget import TimeBudget, search_in_time

FINE_TUNING = CONTINUED_TRAINING | {"learning_rate": 1e-4, "ctc_weight": 0.0, "label_smoothing": 0.0}
CHUNK = 32  # recordings between two checks of the time budget


class SpeechTask(Task):
    """Recordings with transcripts; models are ranked by WER on the validation set, and by loss where it is equal."""

    family: ClassVar[Family] = "encoder-decoder"
    reads_audio: ClassVar[bool] = True
    columns = (
        Column("valid_loss", "loss", 3),
        Column("valid_wer", "WER", percent=True),
        Column("valid_cer", "CER", percent=True),
    )
    suits_its_size_to_time: ClassVar[bool] = True

    def __init__(self, corpus: AudioCorpus, form: AudioForm) -> None:
        self.corpus: AudioCorpus = corpus
        self.form = form
        self.batch_tokens = self.seed = 0
        self.augment: SpecAugment | None = None

    @classmethod
    def open(cls, config: RunConfig, init: ModelFolder | None, cache: CorpusCache) -> SpeechTask:
        form = _form_of(init) if init else AudioForm(config.model.features or AudioForm().bins)
        return cls(prepare_audio(config, *cache, form), form)

    @classmethod
    def preset(cls, name: Preset, user_config: RunConfig) -> Sections:
        return speech_preset(name)

    def preset_for_corpus(self) -> Preset:
        return preset_for(self.corpus.report.seconds, SECONDS)

    def resolve(self, user_config: RunConfig, init: ModelFolder | None) -> RunConfig:
        name = user_config.preset or self.preset_for_corpus()
        sections = speech_preset(name)
        if init is not None:
            sections["train"] |= FINE_TUNING
        config = user_config.with_defaults(sections, preset=name)
        positions = int(self.corpus.train.source_lengths(config.model.feature_stride).sum())
        config = with_weight_decay(config, user_config, positions)
        model = resolved_model(user_config, init, "encoder-decoder", self._derived(config, user_config))
        config = config.replace(model=model)
        self._check_lengths(config)
        return config

    def _derived(self, config: RunConfig, user_config: RunConfig) -> dict[str, Any]:
        """Model settings that follow from the corpus; a fine-tuned Whisper model no longer pads to 30 seconds."""
        chosen = user_config.model.model_fields_set
        derived = vocabulary_settings(self.corpus.tokenizer)
        derived |= {"features": self.form.bins, "ctc": config.train.ctc_weight > 0}
        defaults: dict[str, Any] = {
            "full_window": False,
            "max_length": self._longest_target() + 2,
            "source_max_length": self._window(config.model.feature_stride),
        }
        return derived | {name: value for name, value in defaults.items() if name not in chosen}

    def prepare(self, config: RunConfig) -> None:
        self.config, train = config, config.train
        self.batch_tokens, self.seed = train.batch_tokens, train.seed
        self.augment = SpecAugment.of(train) if train.freq_masks or train.time_masks else None

    def plan(self, epoch: int) -> list[Indices]:
        return self._plan(self.corpus.train, self.seed, epoch)

    def split_batch(self, batch: Indices, update: int, count: int) -> MicroBatches:
        train = self.corpus.train
        tokens = int(train.targets.lengths[batch].sum()) + len(batch)  # each target ends in EOS
        parts = enumerate(micro_batches(batch, count))
        builders = [partial(self._augmented, part, update, number) if len(part) else None for number, part in parts]
        return MicroBatches(tokens, builders)

    def loss(self, model: Any, micro_batch: Any, smoothing: float = 0.0, sampled_softmax: int = 0) -> Loss:
        return speech_loss(model, micro_batch, smoothing, self.config.train.ctc_weight, len(self.form.prompt))

    def validation(self) -> Iterator[Batch]:
        for indices in self._plan(self.corpus.valid, 0, 0):
            yield self._collate(self.corpus.valid, indices)

    def measure(self, folder: ModelFolder, budget: TimeBudget, log: Progress) -> Scores:
        """WER and CER of transcripts of the validation set."""
        most = budget.state.valid_sentences or self.config.train.valid_sentences
        references = self.corpus.valid_text[:most]
        transcriber = Transcriber(folder, device=device_of(folder))

        def transcribe(chunk: range) -> list[str]:
            return list(transcriber.transcribe_features(map(self._features, chunk)))

        written = search_in_time(transcribe, len(references), CHUNK, budget, log)
        result = evaluate_speech(written, references[: len(written)])
        return {"valid_wer": result.wer, "valid_cer": result.cer}

    def rank(self, scores: Scores) -> list[float]:
        return [-scores["valid_wer"], -scores["valid_loss"]]

    def _features(self, index: int) -> FeatureFrames:
        model = self.config.model
        return FeatureFrames.of(pad_with_silence(self.corpus.valid.source(index), model), model.feature_stride)

    def _plan(self, pairs: AudioPairs, seed: int, epoch: int) -> list[Indices]:
        model = self.config.model
        lengths = pairs.source_lengths(model.feature_stride)
        lengths = np.full_like(lengths, model.source_length) if model.full_window else lengths
        return plan_batches(lengths, pairs.targets.lengths, self.batch_tokens, seed, epoch)

    def _augmented(self, indices: Indices, update: int, number: int) -> Batch:
        """A micro-batch of the training set; its random numbers follow from seed, update and micro-batch."""
        augment = None
        if self.augment is not None:
            augment = self.augment, np.random.default_rng((self.seed, update, number))
        return self._collate(self.corpus.train, indices, augment)

    def _collate(
        self, pairs: AudioPairs, indices: Indices, augment: tuple[SpecAugment, np.random.Generator] | None = None
    ) -> Batch:
        return collate_audio(pairs, indices, self.corpus.tokenizer.specials, self.config.model, augment)

    def _window(self, stride: int) -> int:
        """Positions of a window: somewhat more than the longest recording, so that one like it is not cut."""
        longest = self._longest_source(stride)
        return max(longest + FRAMES_PER_SECOND // stride, longest * 5 // 4)

    def _longest_source(self, stride: int) -> int:
        both = (self.corpus.train, self.corpus.valid)
        return max(2, *(int(pairs.source_lengths(stride).max()) for pairs in both))

    def _longest_target(self) -> int:
        return 2 * max(int(pairs.targets.lengths.max()) for pairs in (self.corpus.train, self.corpus.valid))

    def _check_lengths(self, config: RunConfig) -> None:
        model = config.model
        source, target = self._longest_source(model.feature_stride), self._longest_target() // 2 + 1
        if source > model.source_length:
            longest, seconds = (n * model.feature_stride / FRAMES_PER_SECOND for n in (source, model.source_length))
            raise SettingError(
                f"a recording has {longest:.1f} seconds at its slowest speed, and the model takes {seconds:.1f}; "
                f"set data.max_seconds={seconds * min(config.data.speed_perturbation):.1f}."
            )
        if target > model.max_length:
            raise SettingError(
                f"a transcript has {target} tokens, and the model takes {model.max_length} (model.max_length); set "
                f"data.max_length={model.max_length - 1}."
            )


def _form_of(init: ModelFolder) -> AudioForm:
    """The features, vocabulary and prompt of a trained model."""
    whisper = WhisperTokens.of(init.tokenizer, init.config.vocab_size)
    if whisper is None:
        return AudioForm(init.config.features, init.tokenizer)
    language = "en" if whisper.languages else None
    return AudioForm(init.config.features, init.tokenizer, whisper.prompt(language, timestamps=False), space=True)
