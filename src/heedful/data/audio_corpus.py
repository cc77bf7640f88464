"""Recordings with transcripts -> log-mel frames and ids on disk: the corpus of a speech recognizer.

Every recording is decoded once for each speed of `data.speed_perturbation`. Frames are stored in float16, whose error
is a hundredth of the noise in a quiet recording. Knows files, features and ids; knows no batches and no torch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.audio.audio_files import AudioFile, TooLongError
from heedful.audio.log_mel import FRAMES_PER_SECOND, FeatureFrames, Frames, log_mel
from heedful.config import RunConfig
from heedful.data.corpus import Accept, Corpus, CorpusBuilder, Progress, Tokenizers
from heedful.data.data_report import CorpusReport, Lengths
from heedful.data.pairs import RaggedIds, RaggedWriter, id_type, map_array, open_ragged
from heedful.data.scan import split_examples
from heedful.errors import DataError, SettingError
from heedful.formats.audio_manifest import NO_FILE, AudioManifest, Utterance
from heedful.formats.line_files import BadLine, DroppedLines
from heedful.text import Tokenizer, train_plain_vocabulary, train_vocabulary

NOT_AUDIO, LONG_AUDIO, SHORT_AUDIO = "audio that cannot be decoded", "longer than data.max_seconds", "under 10 ms"
LONG_TEXT = "a transcript longer than data.max_length"
REPORT_EVERY = 1000  # recordings between two progress messages


@dataclass
class AudioReport(CorpusReport):
    """Counts of recordings and seconds."""

    kept: int = 0
    seconds: float = 0.0
    speeds: list[float] = field(default_factory=list)
    valid_kept: int = 0
    valid_seconds: float = 0.0
    vocab_size: int = 0
    target_lengths: Lengths = field(default_factory=Lengths)

    def lines(self) -> list[str]:
        valid = "held out from the training data" if self.valid_corpus is None else f"listed in {self.valid_corpus}"
        speeds = f", each at {len(self.speeds)} speeds" if len(self.speeds) > 1 else ""
        return [
            f"{self.kept:,} recordings ({self.seconds / 60:,.1f} minutes) listed in {self.corpus} for training{speeds}",
            *self.unreadable_lines(),
            f"validation set: {self.valid_kept:,} recordings ({self.valid_seconds / 60:,.1f} minutes) {valid}",
            *self.valid_unreadable_lines(),
            f"vocabulary: {self.vocab_size:,} tokens",
            f"transcript length in tokens: {self.target_lengths}",
        ]


@dataclass(frozen=True)
class AudioPairs:
    """Log-mel frames and target ids: recording i has the frames `frames[offsets[i]:offsets[i + 1]]`."""

    frames: NDArray[np.float16]  # (all frames, F)
    offsets: NDArray[np.int64]
    targets: RaggedIds

    def __len__(self) -> int:
        return len(self.targets)

    def source(self, i: int) -> Frames:
        return np.asarray(self.frames[self.offsets[i] : self.offsets[i + 1]], np.float32)

    def features(self, i: int, stride: int) -> FeatureFrames:
        return FeatureFrames.of(self.source(i), stride)

    @cached_property
    def frame_counts(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    def source_lengths(self, stride: int) -> NDArray[np.int64]:
        """Positions of the encoder, `stride` frames each."""
        return -(-self.frame_counts // stride)


@dataclass(frozen=True, kw_only=True)
class AudioCorpus(Corpus[AudioReport]):
    """Encoded recordings; those of the training set once for each speed."""

    train: AudioPairs
    valid: AudioPairs
    valid_text: list[str]

    @classmethod
    def contents(cls, path: Path, tokenizers: Tokenizers) -> dict[str, Any]:
        kind = id_type(tokenizers[1].vocab_size)
        bins = json.loads((path / "features.json").read_text(encoding="utf-8"))
        return {
            "train": _open_audio(path, "train", kind, bins),
            "valid": _open_audio(path, "valid", kind, bins),
            "valid_text": json.loads((path / "valid.json").read_text(encoding="utf-8")),
        }


@dataclass(frozen=True)
class AudioForm:
    """What a model reads and writes: mel bins and, of a trained model, its vocabulary.

    `prompt` are the ids that every target begins with, `space` tells whether a transcript begins with a space.
    """

    bins: int = 80
    tokenizer: Tokenizer | None = None
    prompt: tuple[int, ...] = ()
    space: bool = False

    def encode(self, tokenizer: Tokenizer, text: str) -> list[int]:
        return [*self.prompt, *tokenizer.encode(f" {text}" if self.space else text)]


def prepare_audio(
    config: RunConfig, cache_dir: Path, progress: Progress, accept: Accept, form: AudioForm
) -> AudioCorpus:
    """The encoded recordings of a run, from `cache_dir` if they are there already."""
    data = config.data
    if data.audio is None:
        raise SettingError("no recordings are given; set data.audio to a TSV file, path TAB text.")
    train = AudioManifest(data.audio, data.strict)
    valid = AudioManifest(data.valid_audio, data.strict) if data.valid_audio else None
    tokenizers = (form.tokenizer, form.tokenizer) if form.tokenizer else None
    return AudioBuilder(config, train, valid, tokenizers, progress, form).prepare(cache_dir, accept)


@dataclass(frozen=True)
class AudioBuilder(CorpusBuilder[AudioManifest, AudioReport, AudioCorpus]):
    """Holds out recordings, trains the vocabulary on the transcripts, and computes the features."""

    form: AudioForm

    corpus_type = AudioCorpus
    report_type = AudioReport

    def settings(self) -> dict[str, Any]:
        data = self.config.data
        form = {"bins": self.form.bins, "prompt": self.form.prompt}
        return data.model_dump(include={"valid_size", "max_length", "max_seconds", "speed_perturbation"}) | form

    def build(self, folder: Path) -> tuple[Tokenizers, AudioReport]:
        report = AudioReport(speeds=list(self.config.data.speed_perturbation))
        train, valid = self._split(report)
        tokenizer = self.form.tokenizer or self._train_vocabulary([utterance.text for utterance in train])
        kind = id_type(tokenizer.vocab_size)
        encoder = _AudioEncoder(self.config, self.form, tokenizer, self.progress)
        valid_dropped = report.valid_unreadable if self.valid else report.unreadable
        with closing(_AudioWriter(folder, "valid", kind)) as writer:
            valid_kept = list(encoder.append(valid, (1.0,), writer, self.valid or self.train, valid_dropped))
        with closing(_AudioWriter(folder, "train", kind)) as writer:
            train_kept = list(encoder.append(train, report.speeds, writer, self.train, report.unreadable))
        report.target_lengths = Lengths.of(open_ragged(folder, "train.target", kind).lengths)
        for name, files in (("train", train_kept), ("valid", valid_kept)):
            if not files:
                why = "; ".join(line.strip() for line in [*report.unreadable_lines(), *report.valid_unreadable_lines()])
                part, manifest, advice = "training", self.train, ""
                if name == "valid":
                    part, manifest = "validation", self.valid or self.train
                    advice = "" if self.valid else ", or others for validation with data.valid_audio"
                raise DataError(
                    f"no recording of {manifest} is left in the {part} set ({why or '0 kept'}); give more that can be"
                    f" read{advice}."
                )
        report.kept, report.valid_kept, report.vocab_size = len(train_kept), len(valid_kept), tokenizer.vocab_size
        report.seconds, report.valid_seconds = (
            sum(seconds for _, seconds in files) for files in (train_kept, valid_kept)
        )
        text = [utterance.text for utterance, _ in valid_kept]
        (folder / "valid.json").write_text(json.dumps(text, ensure_ascii=False), encoding="utf-8")
        (folder / "features.json").write_text(json.dumps(self.form.bins), encoding="utf-8")
        return (tokenizer, tokenizer), report

    def _split(self, report: AudioReport) -> tuple[list[Utterance], list[Utterance]]:
        """The training and the validation recordings."""
        data = self.config.data
        report.set_files(self.train, self.valid)
        dropped, valid_dropped = DroppedLines(), DroppedLines()
        report.unreadable, report.valid_unreadable = dropped, valid_dropped
        train = list(self.train.utterances(None if data.strict else dropped))
        if not train:
            raise DataError(f"{self.train} lists no recordings{dropped.first()}; each line is path TAB text.")
        if self.valid:
            return train, list(self.valid.utterances(None if data.strict else valid_dropped))
        candidates = np.array([utterance.path.is_file() for utterance in train], np.bool_)
        if not candidates.any():
            raise DataError(
                f"no recording of {self.train} exists, such as {train[0].path}; paths are relative to that file."
            )
        return split_examples(train, (utterance.name for utterance in train), candidates, self.config)

    def _train_vocabulary(self, texts: Sequence[str]) -> Tokenizer:
        text = self.config.text
        self.progress(f"training a vocabulary ({text.kind}) on {len(texts):,} transcripts")
        if text.kind == "bpe":
            return train_vocabulary(texts, text.vocab_size, text.lowercase)
        return train_plain_vocabulary(texts, text.kind, text.vocab_size, text.lowercase)


@dataclass(frozen=True)
class _AudioEncoder:
    """Computes the features of recordings and appends them to a file; what cannot be used is dropped and counted."""

    config: RunConfig
    form: AudioForm
    tokenizer: Tokenizer
    progress: Progress

    def append(
        self,
        utterances: Sequence[Utterance],
        speeds: Sequence[float],
        writer: _AudioWriter,
        manifest: AudioManifest,
        dropped: Any,
    ) -> Iterator[tuple[Utterance, float]]:
        """Yield the recordings that are kept, with their seconds."""
        for number, utterance in enumerate(utterances, 1):
            outcome = self._encode(utterance, speeds)
            if isinstance(outcome, BadLine):
                if manifest.strict:
                    raise outcome.error(manifest)
                dropped.add(outcome)
                continue
            ids, versions = outcome
            for frames in versions:
                writer.append(frames, ids)
            yield utterance, len(versions[0]) / FRAMES_PER_SECOND * speeds[0]
            if number % REPORT_EVERY == 0:
                self.progress(f"features of {number:,} recordings")

    def _encode(self, utterance: Utterance, speeds: Sequence[float]) -> tuple[list[int], list[Frames]] | BadLine:
        data = self.config.data
        ids = self.form.encode(self.tokenizer, utterance.text)
        if len(ids) > data.max_length:
            return BadLine(LONG_TEXT, utterance.line, f"has a transcript of {len(ids)} tokens; raise data.max_length.")
        if not utterance.path.is_file():
            return BadLine(
                NO_FILE, utterance.line, f"names {utterance.path}, which is not a file; paths are relative to the list."
            )
        file = AudioFile.of(utterance.path)
        try:
            versions = [log_mel(file.samples(speed, data.max_seconds), self.form.bins) for speed in speeds]
        except DataError as error:
            reason = LONG_AUDIO if isinstance(error, TooLongError) else NOT_AUDIO
            return BadLine(reason, utterance.line, f"cannot be used: {error}")
        if not all(map(len, versions)):
            return BadLine(SHORT_AUDIO, utterance.line, f"names {utterance.path}, which is shorter than 10 ms.")
        return ids, versions


class _AudioWriter:
    """Appends recordings to the files `name.frames`, `name.offsets`, `name.target.ids` and `name.target.offsets`."""

    def __init__(self, folder: Path, name: str, kind: type[np.unsignedinteger]) -> None:
        self.frames = RaggedWriter(folder / f"{name}.frames", folder / f"{name}.offsets", np.float16)
        self.targets = RaggedWriter.of(folder, f"{name}.target", kind)

    def append(self, frames: Frames, ids: Sequence[int]) -> None:
        self.frames.append_flat(frames, np.array([len(frames)]))
        self.targets.append([ids])

    def close(self) -> None:
        self.frames.close()
        self.targets.close()


def _open_audio(folder: Path, name: str, kind: type[np.unsignedinteger], bins: int) -> AudioPairs:
    frames = map_array(folder / f"{name}.frames", np.float16).reshape(-1, bins)
    offsets = map_array(folder / f"{name}.offsets", np.int64)
    return AudioPairs(frames, offsets, open_ragged(folder, f"{name}.target", kind))
