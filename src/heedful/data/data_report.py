"""What was read from the files of a corpus, what is used, and what was dropped and why.

Filled in while a corpus is built, stored as JSON beside the ids, and printed when training starts. Nothing is dropped
silently: `read` is always `kept` plus everything that was dropped or held out.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from heedful.formats.line_files import Dropped, FileCounts

MAX_SKIPPED = 10  # files that a report names
EMPTY, DUPLICATE, LONG, RATIO = "empty side", "exact duplicate", "too long", "length ratio"


class CorpusFiles(Protocol):
    """The files of a training or validation set; `str` names them."""

    @property
    def files(self) -> Sequence[Path]: ...


@dataclass
class CorpusReport(ABC):
    """What the reports of all kinds of corpora share: the names of the files, and lines that cannot be read."""

    corpus: str = ""
    files: list[str] = field(default_factory=list)
    valid_corpus: str | None = None  # None: held out
    valid_files: list[str] = field(default_factory=list)
    unreadable: dict[str, Dropped] = field(default_factory=dict)
    valid_unreadable: dict[str, Dropped] = field(default_factory=dict)

    @abstractmethod
    def lines(self) -> list[str]:
        """The report as text."""

    def set_files(self, train: CorpusFiles, valid: CorpusFiles | None) -> None:
        """Set the names of the files, which may differ from those that a cached corpus was built from."""
        self.corpus, self.files = str(train), [str(path) for path in train.files]
        self.valid_corpus = str(valid) if valid else None
        self.valid_files = [str(path) for path in valid.files] if valid else []

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Self:
        return TypeAdapter(cls).validate_json(text)

    def unreadable_lines(self) -> list[str]:
        return [f"  {line}" for line in describe_dropped_lines(self.unreadable, self.files)]

    def valid_unreadable_lines(self) -> list[str]:
        return [f"  {line}" for line in describe_dropped_lines(self.valid_unreadable, self.valid_files)]


@dataclass(frozen=True)
class Lengths:
    """Tokens per sentence, without special tokens."""

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
        return f"mean {self.mean:.1f}, median {self.median:g}, 95th percentile {self.p95:g}, maximum {self.max}"


@dataclass(frozen=True)
class UnusualCharacter:
    """How often one kind of unusual characters occurs, and where first."""

    count: int
    side: str
    line: int


@dataclass
class ParallelReport(CorpusReport):
    """Counts of pairs. `valid_*` describe the validation files, or the held-out pairs if there are none."""

    read: int = 0
    kept: int = 0
    dropped: dict[str, int] = field(default_factory=dict)  # includes `unreadable`
    held_out: int = 0
    identical: int = 0  # pairs with the same text on both sides
    extra_columns: int = 0
    valid_read: int = 0
    valid_kept: int = 0
    valid_dropped: dict[str, int] = field(default_factory=dict)
    valid_sources: int = 0  # distinct source sentences
    valid_overlap: int = 0  # training pairs whose source also occurs in the validation files
    source_lengths: Lengths = field(default_factory=Lengths)
    target_lengths: Lengths = field(default_factory=Lengths)
    source_vocab_size: int = 0
    target_vocab_size: int = 0
    joint: bool = True
    examples: dict[str, str] = field(default_factory=dict)  # the first pair that a filter dropped
    masked: int = 0  # pairs whose placeholders are slots
    annotated: int = 0  # training pairs with annotated terms
    sampled: int = 1  # the vocabulary is trained on one pair in this many
    truncated: int = 0  # sources of the training and validation sets that were cut at their end
    truncated_tokens: int = 0  # that were cut off
    source_limit: int = 0  # tokens of a source
    unusual: dict[str, UnusualCharacter] = field(default_factory=dict)
    by_file: list[FileCounts] = field(default_factory=list)  # of a corpus of several formats
    skipped: list[str] = field(default_factory=list)  # files of folders that are not read

    def reasons(self) -> list[str]:
        """What was dropped and why, as '3 dropped: not UTF-8 (first: line 2 of a.en)'."""
        return _describe_dropped_pairs(self.dropped, "", self.unreadable, self.files, self.examples)

    def valid_reasons(self) -> list[str]:
        return _describe_dropped_pairs(self.valid_dropped, " from validation", self.valid_unreadable, self.valid_files)

    def lines(self) -> list[str]:
        return [
            f"{self.read:,} pairs read from {self.corpus}, {self.kept:,} kept for training",
            *(f"  {reason}" for reason in self.reasons()),
            *(f"  {counts}" for counts in self.by_file),
            *self._skipped_lines(),
            *self._valid_lines(),
            *self._vocabulary_lines(),
            f"source length in tokens: {self.source_lengths}",
            f"target length in tokens: {self.target_lengths}",
            *self._notes(),
        ]

    def _skipped_lines(self) -> Iterable[str]:
        shown = self.skipped[:MAX_SKIPPED]
        yield from (f"  file not read: {file}" for file in shown)
        if len(self.skipped) > len(shown):
            yield f"  and {len(self.skipped) - len(shown):,} other files not read"

    def _valid_lines(self) -> Iterable[str]:
        if self.valid_corpus is None:
            yield (
                f"validation set: {self.held_out:,} pair{'s' * (self.held_out != 1)} held out from the training data"
                f" (distinct sources: {self.valid_sources:,})"
            )
            return
        yield f"validation set: {self.valid_kept:,} of {self.valid_read:,} pairs read from {self.valid_corpus}"
        yield from (f"  {reason}" for reason in self.valid_reasons())
        if self.valid_overlap:
            yield (
                f"  warning: the source sentences of {self.valid_overlap:,} training pairs also occur in the"
                " validation set (kept)"
            )

    def _vocabulary_lines(self) -> Iterable[str]:
        if self.joint:
            yield f"vocabulary: {self.source_vocab_size:,} tokens, shared by source and target"
        else:
            yield f"vocabularies: {self.source_vocab_size:,} source tokens, {self.target_vocab_size:,} target tokens"
        if self.sampled > 1:
            yield f"  trained on one pair in {self.sampled}"

    def _notes(self) -> Iterable[str]:
        if self.masked:
            yield f"pairs with the same placeholders on both sides: {self.masked:,} (placeholders become slots)"
        if self.annotated:
            yield f"training pairs with terms annotated in their source: {self.annotated:,} (glossary augmentation)"
        if self.truncated:
            yield (
                f"sources truncated to {self.source_limit:,} tokens: {self.truncated:,}"
                f" ({self.truncated_tokens:,} tokens at their ends are not read)"
            )
        if self.identical:
            yield f"pairs whose source and target are the same text: {self.identical:,} (kept)"
        if self.extra_columns:
            yield f"lines with more than two columns: {self.extra_columns:,} (only the first two columns are used)"
        for name, unusual in self.unusual.items():
            yield f"{name}: {unusual.count:,} (first: line {unusual.line:,}, {unusual.side} side)"


def _describe_dropped_pairs(
    dropped: Mapping[str, int],
    where: str,
    unreadable: Mapping[str, Dropped],
    files: Sequence[str],
    examples: Mapping[str, str] | None = None,
) -> list[str]:
    first = {reason: _first_line(lines, files) for reason, lines in unreadable.items()} | dict(examples or {})
    places = {reason: f" (first: {example})" for reason, example in first.items()}
    return [f"{count:,} dropped{where}: {reason}{places.get(reason, '')}" for reason, count in dropped.items() if count]


def describe_dropped_lines(unreadable: Mapping[str, Dropped], files: Sequence[str]) -> list[str]:
    """As '3 lines dropped: not UTF-8 (first: line 2 of a.txt)'."""
    return [
        f"{dropped.count:,} line{'s' * (dropped.count != 1)} dropped: {reason} (first: {_first_line(dropped, files)})"
        for reason, dropped in unreadable.items()
    ]


def _first_line(dropped: Dropped, files: Sequence[str]) -> str:
    example = f": {dropped.example}" if dropped.example else ""
    return f"line {dropped.line:,} of {files[dropped.file]}{example}"
