"""Translation: an encoder-decoder learns a target given its source; BLEU on the validation set selects the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch

from heedful.config import SECTIONS, DataSettings, Family, Preset, RunConfig, preset_for
from heedful.config.presets import CONTINUED_TRAINING, SELECTABLE, Sections, preset, presets_up_to
from heedful.data.batch import Batch, collate
from heedful.data.bpe_dropout import BPEDropout, apply_bpe_dropout
from heedful.data.bucketing import plan_batches
from heedful.data.corpus import CorpusCache, ignore_progress
from heedful.data.pairs import Pairs
from heedful.data.parallel_corpus import ParallelCorpus, prepare_parallel
from heedful.errors import DataError, SettingError
from heedful.evaluation.calibration import MIN_WORDS, calibrate, save_calibration
from heedful.evaluation.metrics import quick_scores
from heedful.formats.line_files import count_lines
from heedful.inference.translator import Translator
from heedful.storage.folder import ModelFolder, load_folder, save_search
from heedful.text.words import words
from heedful.training.init.lsa import cached_singular_vectors, lsa_embeddings
from heedful.training.losses import translation_loss
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

PENALTY_STEP, MAX_PENALTY = 0.2, 1.0  # of the length penalty
CHUNK = 25  # sentences between two checks of the time budget


class TranslationTask(Task):
    """Sentence pairs; models are ranked by BLEU on the validation set, and by loss where BLEU is equal."""

    family: ClassVar[Family] = "encoder-decoder"
    native_loss: ClassVar[bool] = True
    loss_function = staticmethod(translation_loss)
    columns: tuple[Column, ...] = (
        Column("valid_loss", "loss", 3),
        Column("valid_perplexity", "perplexity"),
        Column("valid_bleu", "BLEU", percent=True),
        Column("valid_chrf", "chrF", percent=True),
    )
    suits_its_size_to_time: ClassVar[bool] = True
    metric: ClassVar[tuple[str, str]] = ("valid_bleu", "BLEU")  # that ranks models, and its name
    defaults: ClassVar[Sections] = {}  # of this task, over those of a preset
    data_defaults: ClassVar[dict[str, Any]] = {}  # known before the corpus is read
    translator_type: ClassVar[type[Translator]] = Translator

    def __init__(self, corpus: ParallelCorpus) -> None:
        self.corpus: ParallelCorpus = corpus
        self.batch_tokens, self.planned_tokens, self.seed, self.longest = 0, 0, 0, 0
        self.bpe_dropout: tuple[BPEDropout, BPEDropout] | None = None

    @classmethod
    def open(cls, config: RunConfig, init: ModelFolder | None, cache: CorpusCache) -> TranslationTask:
        tokenizers = (init.source_tokenizer, init.tokenizer) if init else None
        config = cls.with_data_defaults(config, init)
        return cls(prepare_parallel(config, *cache, tokenizers))

    @classmethod
    def with_data_defaults(cls, config: RunConfig, init: ModelFolder | None) -> RunConfig:
        """The settings with those of `data` that this task changes."""
        open_ = {key: value for key, value in cls.data_defaults.items() if key not in config.data.model_fields_set}
        return config.replace(data=open_) if open_ else config

    @classmethod
    def possible_presets(cls, data: DataSettings) -> Sequence[Preset]:
        return presets_up_to(preset_for(count_lines(data.source))) if data.source else SELECTABLE

    @classmethod
    def known(cls, user_config: RunConfig) -> dict[str, Any]:
        return cls._lengths_and_ties(user_config, user_config.text.joint) | (
            {} if user_config.text.joint else {"source_vocab_size": 1}
        )

    def preset_for_corpus(self) -> Preset:
        return preset_for(len(self.corpus.train))

    def resolve(self, user_config: RunConfig, init: ModelFolder | None) -> RunConfig:
        corpus = self.corpus
        name = user_config.preset or self.preset_for_corpus()
        sections = preset("encoder-decoder", name, user_config.model.architecture)
        sections = {section: sections.get(section, {}) | self.own_defaults(section) for section in SECTIONS}
        user_config = self.with_data_defaults(user_config, init)
        tokens = int(corpus.train.targets.lengths.sum()) + len(corpus.train)  # each target ends in EOS
        if init is not None and init.task != "denoising":
            sections["train"] |= CONTINUED_TRAINING
        config = user_config.with_defaults(sections, preset=name)
        config = with_weight_decay(config, user_config, tokens)
        derived = vocabulary_settings(corpus.target_tokenizer) | self._lengths_and_ties(user_config, corpus.joint)
        derived["source_vocab_size"] = None if corpus.joint else corpus.source_tokenizer.vocab_size
        config = config.replace(model=resolved_model(user_config, init, "encoder-decoder", derived))
        self._check_lengths(config)
        return config

    def own_defaults(self, section: str) -> dict[str, Any]:
        """Defaults of this task over those of a preset; they may depend on the corpus."""
        return self.defaults.get(section, {})

    @classmethod
    def _lengths_and_ties(cls, user_config: RunConfig, joint: bool) -> dict[str, Any]:
        """Model settings that follow from the longest pair and the number of vocabularies, unless the user set them."""
        derived: dict[str, Any] = {} if joint or "tie" in user_config.model.model_fields_set else {"tie": "target"}
        if "max_length" not in user_config.model.model_fields_set:
            derived["max_length"] = cls.max_positions(user_config.data)
        return derived

    @classmethod
    def max_positions(cls, data: DataSettings) -> int:
        """Positions of a new model: twice the longest source, for its translation."""
        return 2 * (max(data.max_length, data.max_source_length or 0) + 1)

    def prepare(self, config: RunConfig) -> None:
        self.config = config
        self.batch_tokens = self.planned_tokens = config.train.batch_tokens
        self.seed, self.longest = config.train.seed, config.model.max_length - 1
        self.bpe_dropout = None
        if config.train.bpe_dropout:
            self.bpe_dropout = self._open_bpe_dropout(config.train.bpe_dropout)
            sides = zip(self.bpe_dropout, (self.corpus.train.sources, self.corpus.train.targets), strict=True)
            self.planned_tokens = int(self.batch_tokens / max(dropout.growth(side) for dropout, side in sides))

    def initialize(self, model: Any, config: RunConfig) -> str:
        if config.train.embedding_init == "random":
            return ""
        embeddings = [table for table in (model.source_embedding, model.embedding) if table is not None]
        sizes = [len(table.weight) for table in embeddings]
        generator = torch.Generator().manual_seed(config.train.seed)
        initial = lsa_embeddings(cached_singular_vectors(self.corpus, sizes, config.model.d_model), generator)
        for table, rows in zip(embeddings, torch.split(initial, sizes), strict=True):
            table.weight.data.copy_(rows)
        return "LSA-initialized embeddings: singular vectors of the token-pair matrix of the corpus"

    def plan(self, epoch: int) -> list[Indices]:
        train = self.corpus.train
        return plan_batches(train.sources.lengths, train.targets.lengths, self.planned_tokens, self.seed, epoch)

    def split_batch(self, batch: Indices, update: int, count: int) -> MicroBatches:
        pairs = self.corpus.train
        if self.bpe_dropout is not None:
            random = np.random.default_rng((self.seed, update, 0))
            pairs, batch = (
                apply_bpe_dropout(pairs, batch, self.bpe_dropout, self.longest, random),
                np.arange(len(batch)),
            )
        tokens = int(pairs.targets.lengths[batch].sum()) + len(batch)  # each target ends in EOS
        return MicroBatches.of(tokens, batch, count, partial(self._collate, pairs))

    def validation(self) -> Iterator[Batch]:
        valid = self.corpus.valid
        for indices in plan_batches(valid.sources.lengths, valid.targets.lengths, self.batch_tokens, 0, 0):
            yield self._collate(valid, indices)

    def measure(self, folder: ModelFolder, budget: TimeBudget, log: Progress) -> Scores:
        """BLEU and chrF of translations of the validation set."""
        sentences = self.corpus.valid_text[: budget.state.valid_sentences or self.config.train.valid_sentences]
        sources = [source for source, _ in sentences]
        translator = self.translator_type([folder], device=device_of(folder))
        translator.notice = ignore_progress

        def translate(chunk: range) -> list[str]:
            return translator.translate(sources[chunk.start : chunk.stop])

        translated = search_in_time(translate, len(sources), CHUNK, budget, log)
        normalize = self.corpus.target_tokenizer.normalize  # a lower-case model is scored on lower-case references
        return self.compare(translated, [normalize(target) for _, target in sentences[: len(translated)]])

    def compare(self, outputs: Sequence[str], references: Sequence[str]) -> Scores:
        """The scores of outputs for the validation set."""
        return quick_scores(outputs, references)

    def count_final_searches(self) -> int:
        return 0 if "length_penalty" in self.config.search.model_fields_set else 2

    def tune_search(self, folder: ModelFolder, best_score: float, budget: TimeBudget, log: Progress) -> None:
        """Choose the length penalty by the metric on the validation set, unless it is set, and calibrate confidence.

        Models trained briefly or on little data prefer sentences that are too short. The paper, too, chose its penalty
        on the development set. A penalty of 1 scores a sentence by about its mean token; a larger one would reward
        length itself and fit the lengths of these references. A timed run tries as many values as there is time for.
        """
        if self.count_final_searches():
            self._tune_length_penalty(folder, best_score, budget, log)
        if self.metric == TranslationTask.metric:
            self._calibrate(folder, budget, log)

    def _calibrate(self, folder: ModelFolder, budget: TimeBudget, log: Progress) -> None:
        """Calibrate confidence on the validation set, if it is large enough and time is left."""
        sentences = self.corpus.valid_text[: budget.state.valid_sentences or self.config.train.valid_sentences]
        if sum(len(words(target)) for _, target in sentences) < 2 * MIN_WORDS or not budget.affords(1):
            return
        normalize, translator = self.corpus.target_tokenizer.normalize, Translator([load_folder(folder.path)])
        best = [n_best[0] for n_best in translator.translations([source for source, _ in sentences])]
        try:
            result = calibrate(best, [normalize(target) for _, target in sentences])
        except DataError:  # a model that writes almost nothing
            return
        save_calibration(folder.path, result)
        log(f"confidence is calibrated on the validation set: calibration error {result.errors['words']:.1f} % (words)")

    def _tune_length_penalty(self, folder: ModelFolder, best_score: float, budget: TimeBudget, log: Progress) -> None:
        penalty = self.config.search.length_penalty
        if not budget.affords(1):
            log(f"length penalty {penalty:g}: no time is left to try others")
            return

        key, metric = self.metric

        def score(value: float) -> float:
            if not budget.affords(2):  # the last one calibrates confidence
                return 0.0  # lower than any score so far
            search = folder.search.model_copy(update={"length_penalty": value})
            return self.measure(replace(folder, search=search), budget, log)[key]

        penalty, best_score = climb(score, penalty, best_score, PENALTY_STEP, MAX_PENALTY)
        save_search(folder.path, folder.search.model_copy(update={"length_penalty": penalty}))
        log(f"length penalty {penalty:g}, chosen on the validation set: {metric} {best_score:.2f}")

    def rank(self, scores: Scores) -> list[float]:
        return [scores[self.metric[0]], -scores["valid_loss"]]

    def _check_lengths(self, config: RunConfig) -> None:
        most, source_limit = (
            config.model.max_length,
            "max_source_length" if config.data.max_source_length else "max_length",
        )
        for name, pairs in (("training", self.corpus.train), ("validation", self.corpus.valid)):
            for setting, lengths in ((source_limit, pairs.sources.lengths), ("max_length", pairs.targets.lengths)):
                if (longest := 1 + int(lengths.max(initial=0))) > most:
                    raise SettingError(
                        f"a pair of the {name} set has {longest} tokens, and the model takes {most} (model.max_length);"
                        f" set data.{setting}={most - 1}, or give the model more."
                    )

    def _open_bpe_dropout(self, rate: float) -> tuple[BPEDropout, BPEDropout]:
        source = BPEDropout.of(self.corpus.source_tokenizer, rate)
        target = source if self.corpus.joint else BPEDropout.of(self.corpus.target_tokenizer, rate)
        if source is None or target is None:
            raise SettingError(
                f"train.bpe_dropout is {rate:g}, but the vocabulary of this model has no BPE merges; "
                "set train.bpe_dropout=0."
            )
        return source, target

    def _collate(self, pairs: Pairs, indices: Indices) -> Batch:
        return collate(pairs, indices, self.corpus.source_tokenizer.specials, self.corpus.target_tokenizer.specials)


def climb(
    score: Callable[[float], float], start: float, best_score: float, step: float, largest: float
) -> tuple[float, float]:
    """Hill climbing from `start`, whose score is known: up while the score rises, else down, not below 0."""
    best = start
    for direction in (step, -step):
        while 0 <= (value := round(best + direction, 6)) <= largest and (new_score := score(value)) > best_score:
            best, best_score = value, new_score
        if best != start:
            break
    return best, best_score
