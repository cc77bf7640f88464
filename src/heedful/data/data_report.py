"""What was found in a corpus, and what became of it.

Filled in by the scan and the store, kept beside the ids, printed by the command line. Nothing is dropped in silence:
`read` is always `kept` plus everything that was dropped or held out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.formats.line_files import Dropped, ParallelFiles

EMPTY, DUPLICATE, LONG, RATIO = "empty side", "exact duplicate", "too long", "length ratio"


@dataclass(frozen=True)
class Lengths:
    """Tokens a sentence, without special tokens."""

    mean: float = 0.0
    median: float = 0.0
    p95: float = 0.0
    max: int = 0
    total: int = 0

    @classmethod
    def of(cls, lengths: NDArray[np.integer]) -> Lengths:
        if not len(lengths):
            return cls()
        median, p95 = np.percentile(lengths, [50, 95])
        return cls(float(lengths.mean()), float(median), float(p95), int(lengths.max()), int(lengths.sum()))

    def __str__(self) -> str:
        return f"mean {self.mean:.1f}, median {self.median:g}, 95 % {self.p95:g}, longest {self.max}"


@dataclass(frozen=True)
class UnusualCharacter:
    """Characters out of the ordinary: how many, and where the first one stands."""

    count: int
    side: str
    line: int


@dataclass
class DataReport:
    """The fate of every pair. `valid_*` tell of validation files, or of what was held out in their place."""

    corpus: str = ""
    files: list[str] = field(default_factory=list)
    valid_files: list[str] = field(default_factory=list)
    read: int = 0
    kept: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    held_out: int = 0  # pairs that left the corpus for validation
    identical: int = 0  # pairs whose two sides are the same text
    extra_columns: int = 0
    valid_corpus: str | None = None  # None: held out
    valid_read: int = 0
    valid_kept: int = 0
    valid_dropped: dict[str, int] = field(default_factory=dict)
    valid_sources: int = 0  # different ones
    valid_overlap: int = 0  # training pairs whose source is in the validation files as well
    source_lengths: Lengths = field(default_factory=Lengths)
    target_lengths: Lengths = field(default_factory=Lengths)
    source_vocab_size: int = 0
    target_vocab_size: int = 0
    joint: bool = True
    sampled: int = 1  # the vocabulary was learned from every so many pairs
    oddities: dict[str, UnusualCharacter] = field(default_factory=dict)
    unreadable: dict[str, Dropped] = field(default_factory=dict)  # those of `dropped` that could not be read
    valid_unreadable: dict[str, Dropped] = field(default_factory=dict)

    def name(self, train: ParallelFiles, valid: ParallelFiles | None) -> None:
        """Say what the files are called: the same content may have another name when it is used again."""
        self.corpus, self.files = str(train), [str(path) for path in train.files]
        self.valid_corpus = str(valid) if valid else None
        self.valid_files = [str(path) for path in valid.files] if valid else []

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, indent=1)

    @classmethod
    def from_json(cls, text: str) -> DataReport:
        values: dict[str, Any] = json.loads(text)
        for side in ("source_lengths", "target_lengths"):
            values[side] = Lengths(**values[side])
        values["oddities"] = {name: UnusualCharacter(**oddity) for name, oddity in values["oddities"].items()}
        for name in ("unreadable", "valid_unreadable"):
            values[name] = dropped_of(values.get(name, {}))
        return cls(**values)

    def reasons(self) -> list[str]:
        """What was dropped, as '3 dropped: not UTF-8 (first: line 2 of a.en)'."""
        return _dropped(self.dropped, "", self.unreadable, self.files)

    def valid_reasons(self) -> list[str]:
        return _dropped(self.valid_dropped, " from validation", self.valid_unreadable, self.valid_files)

    def lines(self) -> list[str]:
        """The report for a reader."""
        return [
            f"{self.read:,} pairs read from {self.corpus}, {self.kept:,} kept for training",
            *(f"  {reason}" for reason in self.reasons()),
            *self._valid_lines(),
            *self._vocabulary_lines(),
            f"source length in tokens: {self.source_lengths}",
            f"target length in tokens: {self.target_lengths}",
            *self._notes(),
        ]

    def _valid_lines(self) -> Iterable[str]:
        if self.valid_corpus is None:
            yield f"validation: {self.held_out:,} pairs with {self.valid_sources:,} sources that left the corpus"
            return
        yield f"validation: {self.valid_kept:,} of {self.valid_read:,} pairs of {self.valid_corpus}"
        yield from (f"  {reason}" for reason in self.valid_reasons())
        if self.valid_overlap:
            yield f"  warning: {self.valid_overlap:,} training pairs have a source of the validation set (kept)"

    def _vocabulary_lines(self) -> Iterable[str]:
        if self.joint:
            yield f"vocabulary: {self.source_vocab_size:,} tokens for both languages"
        else:
            yield f"vocabularies: {self.source_vocab_size:,} source and {self.target_vocab_size:,} target tokens"
        if self.sampled > 1:
            yield f"  learned from one pair in {self.sampled}"

    def _notes(self) -> Iterable[str]:
        if self.identical:
            yield f"{self.identical:,} pairs have the same text on both sides (kept)"
        if self.extra_columns:
            yield f"{self.extra_columns:,} lines have more than two columns (the others are ignored)"
        for name, odd in self.oddities.items():
            yield f"{odd.count:,} {name}, first on the {odd.side} side of line {odd.line:,}"


def _dropped(
    dropped: Mapping[str, int], where: str, unreadable: Mapping[str, Dropped], files: Sequence[str]
) -> list[str]:
    firsts = {reason: f" (first: {first_line(each, files)})" for reason, each in unreadable.items()}
    return [f"{count:,} dropped{where}: {reason}{firsts.get(reason, '')}" for reason, count in dropped.items() if count]


def first_line(dropped: Dropped, files: Sequence[str]) -> str:
    """Where the first of some dropped lines stands."""
    return f"line {dropped.line:,} of {files[dropped.file]}"


def dropped_lines(unreadable: Mapping[str, Dropped], files: Sequence[str]) -> list[str]:
    """Lines of a text that could not be read, for a reader."""
    return [
        f"{each.count:,} lines dropped: {reason} (first: {first_line(each, files)})"
        for reason, each in unreadable.items()
    ]


def dropped_of(read: Mapping[str, Any]) -> dict[str, Dropped]:
    """Dropped lines as they were kept in JSON."""
    return {reason: Dropped(**each) for reason, each in read.items()}
