"""Examples with labels -> ids and label numbers on disk: the corpus of a classifier, tagger or question answerer.

A `LabeledFormat` reads the examples of one task and encodes them. Such files are small, so they are read into memory.
Knows files and ids; `batch` makes tensors of them.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from heedful.config import RunConfig
from heedful.config.model_config import LabelKind
from heedful.data.corpus import Accept, Corpus, CorpusBuilder, Progress, Tokenizers
from heedful.data.data_report import CorpusReport, describe_dropped_lines
from heedful.data.pairs import Pairs, PairsWriter, id_type, map_array, open_pairs
from heedful.data.scan import split_examples
from heedful.errors import DataError
from heedful.formats.babi import labeled_lines
from heedful.formats.line_files import BadLine, DroppedLines, read_good_and_bad_lines
from heedful.text import Specials, Tokenizer
from heedful.text.vocabulary import MASK, train_vocabulary

Labels = NDArray[np.float64]
E = TypeVar("E")


@dataclass(frozen=True)
class EncodedExample:
    """Ids of one or two texts, and their labels: one per text or per token of the first text, or positions."""

    first: list[int]
    second: list[int]
    labels: Sequence[float]
    truncated: bool = False


class LabeledFormat(ABC, Generic[E]):
    """How the examples of a task are read and encoded."""

    kind: ClassVar[LabelKind]

    @abstractmethod
    def read(self, path: Path, dropped: DroppedLines | None = None) -> list[E]:
        """All examples of a file; what cannot be read is counted in `dropped`, or is an error without it."""

    @abstractmethod
    def texts(self, example: E) -> tuple[str, ...]:
        """The texts of an example, to train a vocabulary on."""

    def key(self, example: E) -> str:
        """Examples with the same key are held out together."""
        return "\t".join(self.texts(example))

    @abstractmethod
    def label_counts(self, examples: list[E]) -> dict[str, int]:
        """The labels of the model in the order of their numbers, and how often each occurs."""

    @abstractmethod
    def encode(self, example: E, labels: list[str], tokenizer: Tokenizer, max_length: int) -> list[EncodedExample]:
        """An example as ids and numbers; a long one may become several."""

    def check(self, train: list[E], valid: list[E], where: str) -> None:
        """Refuse examples that cannot be learned from."""


@dataclass(frozen=True)
class LabeledExample:
    """A label, a text, and for text pairs a second text."""

    label: str
    text: str
    second: str = ""


@dataclass
class LabeledReport(CorpusReport):
    """Counts of labeled examples."""

    kept: int = 0
    valid_kept: int = 0
    truncated: int = 0
    windows: int = 0  # encoded examples beyond the first of each example
    labels: dict[str, int] = field(default_factory=dict)
    unanswerable: int = 0  # questions for training without an answer

    def lines(self) -> list[str]:
        valid = "held out from the training data" if self.valid_corpus is None else f"read from {self.valid_corpus}"
        counts = ", ".join(f"{label} {count:,}" for label, count in list(self.labels.items())[:20])
        lines = [
            f"{self.kept:,} examples read from {self.corpus} for training",
            *self.unreadable_lines(),
            f"validation set: {self.valid_kept:,} examples {valid}",
            *self.valid_unreadable_lines(),
        ]
        if self.labels:
            lines.append(f"{len(self.labels)} labels: {counts}{', …' if len(self.labels) > 20 else ''}")
        if self.unanswerable:
            lines.append(f"questions without an answer: {self.unanswerable:,} of those for training")
        if self.windows:
            lines.append(f"windows of long texts: {self.windows:,} in addition to the examples")
        return lines + ([f"texts truncated to the model's maximum length: {self.truncated:,}"] * (self.truncated > 0))


@dataclass(frozen=True, kw_only=True)
class LabeledCorpus(Corpus[LabeledReport]):
    """Encoded examples: two texts each, of which the second may be empty, and their labels, concatenated."""

    train: Pairs
    train_labels: Labels
    valid: Pairs
    valid_labels: Labels
    valid_examples: list[dict[str, Any]]  # as they were read
    labels: tuple[str, ...]

    @classmethod
    def contents(cls, path: Path, tokenizers: Tokenizers) -> dict[str, Any]:
        types = (id_type(tokenizers[0].vocab_size),) * 2
        return {
            "train": open_pairs(path, "train", types),
            "train_labels": map_array(path / "train.labels", np.float64),
            "valid": open_pairs(path, "valid", types),
            "valid_labels": map_array(path / "valid.labels", np.float64),
            "valid_examples": json.loads((path / "valid.json").read_text(encoding="utf-8")),
            "labels": tuple(json.loads((path / "labels.json").read_text(encoding="utf-8"))),
        }


class ClassificationFormat(LabeledFormat[LabeledExample]):
    """Lines of label TAB text [TAB second text]."""

    kind: ClassVar[LabelKind] = "classification"

    def read(self, path: Path, dropped: DroppedLines | None = None) -> list[LabeledExample]:
        return read_labeled(path, dropped)

    def texts(self, example: LabeledExample) -> tuple[str, ...]:
        return (example.text, example.second)

    def label_counts(self, examples: list[LabeledExample]) -> dict[str, int]:
        counts = Counter(example.label for example in examples)
        return {label: counts[label] for label in sorted(counts)}

    def encode(
        self, example: LabeledExample, labels: list[str], tokenizer: Tokenizer, max_length: int
    ) -> list[EncodedExample]:
        first, second, truncated = encode_text_pair(tokenizer, example.text, example.second, max_length)
        return [EncodedExample(first, second, [self.number(example, labels)], truncated)]

    def number(self, example: LabeledExample, labels: list[str]) -> float:
        return labels.index(example.label)

    def check(self, train: list[LabeledExample], valid: list[LabeledExample], where: str) -> None:
        labels = {example.label for example in train}
        if len(labels) < 2:
            raise DataError(f"{where} has one label only ({next(iter(labels))}); a classifier needs two or more.")
        if unknown := sorted({example.label for example in valid} - labels):
            raise DataError(f"the validation set has the label {unknown[0]}, which no training example has; add some.")


class RegressionFormat(ClassificationFormat):
    """Lines of number TAB text [TAB second text]."""

    kind: ClassVar[LabelKind] = "regression"

    def read(self, path: Path, dropped: DroppedLines | None = None) -> list[LabeledExample]:
        return read_labeled(path, dropped, numbers=True)

    def label_counts(self, examples: list[LabeledExample]) -> dict[str, int]:
        return {"score": len(examples)}

    def number(self, example: LabeledExample, labels: list[str]) -> float:
        return float(example.label)

    def check(self, train: list[LabeledExample], valid: list[LabeledExample], where: str) -> None:
        if len({float(example.label) for example in train}) < 2:
            raise DataError(f"all examples of {where} have the same number; regression needs different ones.")


def read_labeled(path: Path, dropped: DroppedLines | None = None, numbers: bool = False) -> list[LabeledExample]:
    """All examples of a TSV file, with `numbers` as labels; other lines are counted in `dropped`, or are errors."""
    label = "number" if numbers else "label"
    examples = []
    for number, line in enumerate(labeled_lines(read_good_and_bad_lines(path)), 1):
        example = line if isinstance(line, BadLine) else _parse_example(line, number, label)
        if isinstance(example, LabeledExample):
            examples.append(example)
        elif example is not None:
            if dropped is None:
                raise example.error(path)
            dropped.add(example)
    if not examples:
        why = "".join(f", {line}" for line in describe_dropped_lines(dropped or {}, [str(path)]))
        raise DataError(
            f"{path} holds no examples{why}; each line is {label} TAB text [TAB second text] (a CoNLL file needs task "
            "tagging, a SQuAD file task question-answering)."
        )
    return examples


def _parse_example(line: str, number: int, label: str) -> LabeledExample | BadLine | None:
    """None for a blank line."""
    if not line.strip():
        return None
    columns = line.split("\t")
    if not 2 <= len(columns) <= 3:
        why = f"has {len(columns)} columns; each must be {label} TAB text [TAB second text]."
        return BadLine(f"not {label} TAB text [TAB second text]", number, why)
    if not columns[0].strip() or not columns[1].strip():
        return BadLine(f"an empty {label} or text", number, f"has an empty {label} or text; each needs both.")
    if label == "number" and not _is_number(columns[0]):
        return BadLine("no number in the first column", number, f"begins with {columns[0][:40]!r}, not with a number.")
    return LabeledExample(columns[0].strip(), *columns[1:])


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def prepare_labeled(
    config: RunConfig,
    cache_dir: Path,
    progress: Progress,
    accept: Accept,
    form: LabeledFormat[Any],
    tokenizer: Tokenizer | None,
    max_length: int,
) -> LabeledCorpus:
    """The encoded examples of a run, from `cache_dir` if they are there already.

    Without a `tokenizer` a vocabulary is trained on the examples.
    """
    data = config.data
    assert data.labeled is not None
    train, valid = LabeledFile(data.labeled), LabeledFile(data.valid_labeled) if data.valid_labeled else None
    tokenizers = (tokenizer, tokenizer) if tokenizer else None
    return LabeledBuilder(config, train, valid, tokenizers, progress, form, max_length).prepare(cache_dir, accept)


@dataclass(frozen=True)
class LabeledFile:
    """A file of labeled examples."""

    path: Path

    @property
    def files(self) -> list[Path]:
        return [self.path]

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True)
class LabeledBuilder(CorpusBuilder[LabeledFile, LabeledReport, LabeledCorpus]):
    """Holds out examples, numbers the labels and encodes the texts."""

    form: LabeledFormat[Any]
    max_length: int

    corpus_type = LabeledCorpus
    report_type = LabeledReport

    def settings(self) -> dict[str, Any]:
        kind = type(self.form).__name__
        return {"valid_size": self.config.data.valid_size, "max_length": self.max_length, "format": kind}

    def build(self, folder: Path) -> tuple[Tokenizers, LabeledReport]:
        report = LabeledReport()
        train, valid = self._split(report)
        self.form.check(train, valid, str(self.train))
        tokenizer = self.tokenizers[0] if self.tokenizers else self._train_vocabulary(train)
        counts = self.form.label_counts(train)
        report.kept, report.valid_kept = len(train), len(valid)
        report.labels = counts if self.form.kind in ("classification", "tagging") else {}
        report.unanswerable = len(train) - counts["start"] if self.form.kind == "question-answering" else 0
        for name, examples in (("train", train), ("valid", valid)):
            rows = [
                row
                for example in examples
                for row in self.form.encode(example, list(counts), tokenizer, self.max_length)
            ]
            report.truncated += sum(row.truncated for row in rows)
            report.windows += len(rows) - len(examples)
            writer = PairsWriter(folder, name, (id_type(tokenizer.vocab_size),) * 2)
            writer.append([row.first for row in rows], [row.second for row in rows])
            writer.close()
            numbers = np.array([number for row in rows for number in row.labels], np.float64)
            (folder / f"{name}.labels").write_bytes(numbers.tobytes())
        (folder / "labels.json").write_text(json.dumps(list(counts)), encoding="utf-8")
        (folder / "valid.json").write_text(json.dumps([asdict(example) for example in valid]), encoding="utf-8")
        return (tokenizer, tokenizer), report

    def _train_vocabulary(self, examples: list[Any]) -> Tokenizer:
        """Subwords of the training texts, with a mask token as in every encoder's vocabulary."""
        text = self.config.text
        texts = dict.fromkeys(text for example in examples for text in self.form.texts(example) if text)
        self.progress(f"training a vocabulary on {len(texts):,} texts")
        return train_vocabulary(list(texts), text.vocab_size, text.lowercase, [MASK])

    def _split(self, report: LabeledReport) -> tuple[list[Any], list[Any]]:
        """The training and the validation examples."""
        data = self.config.data
        dropped, valid_dropped = DroppedLines(), DroppedLines()
        report.unreadable, report.valid_unreadable = dropped, valid_dropped
        train = self.form.read(self.train.path, None if data.strict else dropped)
        if self.valid:
            return train, self.form.read(self.valid.path, None if data.strict else valid_dropped)
        return split_examples(train, map(self.form.key, train), None, self.config)


def encode_text_pair(
    tokenizer: Tokenizer, text: str, second: str, max_length: int
) -> tuple[list[int], list[int], bool]:
    """Ids of both texts, truncated to `max_length` with special tokens; and whether they were."""
    return truncate_text_pair(tokenizer.encode(text), tokenizer.encode(second) if second else [], max_length)


def truncate_text_pair(first: list[int], other: list[int], max_length: int) -> tuple[list[int], list[int], bool]:
    """Both texts, truncated from the longer one so that they fit with special tokens; and whether they were."""
    budget = max(1, max_length - (3 if other else 2))
    if len(first) + len(other) <= budget:
        return first, other, False
    keep_other = max(budget // 2, budget - len(first)) if len(other) > budget // 2 else len(other)
    return first[: budget - keep_other], other[:keep_other], True


def frame_text_pair(
    first: Sequence[int], second: Sequence[int], specials: Specials, types: int
) -> tuple[list[int], list[int]]:
    """`<s> … </s>` or `<s> … </s> … </s>`, and the token type of each: 1 in the second text, if there are types."""
    ids = [specials.bos, *first, specials.eos, *([*second, specials.eos] if len(second) else [])]
    begin = len(first) + 2 if types > 1 else len(ids)
    return ids, [int(place >= begin) for place in range(len(ids))]
