"""Labeled texts -> ids and label numbers on disk: the corpus of a classifier.

One example per line: label TAB text, or label TAB text TAB second text. Such files are small, so they are read into
memory. Knows files and ids; `batch` makes tensors of them.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from heedful.config import RunConfig
from heedful.data.corpus import Accept, Corpus, CorpusBuilder, Progress, Tokenizers, accept_any, ignore_progress
from heedful.data.data_report import CorpusReport, describe_dropped_lines
from heedful.data.pairs import Pairs, PairsWriter, id_type, map_array, open_pairs
from heedful.data.scan import hold_out_pairs
from heedful.errors import DataError
from heedful.formats.babi import labeled_lines
from heedful.formats.line_files import BadLine, DroppedLines, read_good_and_bad_lines
from heedful.text import Tokenizer

Labels = NDArray[np.int64]


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
    labels: dict[str, int] = field(default_factory=dict)

    def lines(self) -> list[str]:
        valid = "held out from the training data" if self.valid_corpus is None else f"read from {self.valid_corpus}"
        counts = ", ".join(f"{label} {count:,}" for label, count in list(self.labels.items())[:20])
        lines = [
            f"{self.kept:,} examples read from {self.corpus} for training",
            *self.unreadable_lines(),
            f"validation set: {self.valid_kept:,} examples {valid}",
            *self.valid_unreadable_lines(),
            f"{len(self.labels)} labels: {counts}{', …' if len(self.labels) > 20 else ''}",
        ]
        return lines + ([f"texts truncated to the model's maximum length: {self.truncated:,}"] * (self.truncated > 0))


@dataclass(frozen=True, kw_only=True)
class LabeledCorpus(Corpus[LabeledReport]):
    """Encoded examples: two texts each, of which the second may be empty, and the number of a label."""

    train: Pairs
    train_labels: Labels
    valid: Pairs
    valid_labels: Labels
    valid_examples: list[LabeledExample]
    labels: tuple[str, ...]

    @classmethod
    def open(cls, path: Path, tokenizers: Tokenizers, report: LabeledReport, reused: bool) -> Self:
        types = (id_type(tokenizers[0].vocab_size),) * 2
        valid = json.loads((path / "valid.json").read_text(encoding="utf-8"))
        return cls(
            path=path,
            tokenizers=tokenizers,
            report=report,
            reused=reused,
            train=open_pairs(path, "train", types),
            train_labels=map_array(path / "train.labels", np.int64),
            valid=open_pairs(path, "valid", types),
            valid_labels=map_array(path / "valid.labels", np.int64),
            valid_examples=[LabeledExample(**example) for example in valid],
            labels=tuple(json.loads((path / "labels.json").read_text(encoding="utf-8"))),
        )


def read_labeled(path: Path, dropped: DroppedLines | None = None) -> list[LabeledExample]:
    """All examples of a TSV file; other lines are counted in `dropped`, or are errors without it."""
    examples = []
    for number, line in enumerate(labeled_lines(read_good_and_bad_lines(path)), 1):
        example = line if isinstance(line, BadLine) else _parse_example(line, number)
        if isinstance(example, LabeledExample):
            examples.append(example)
        elif example is not None:
            if dropped is None:
                raise example.error(path)
            dropped.add(example)
    if not examples:
        why = "".join(f", {line}" for line in describe_dropped_lines(dropped or {}, [str(path)]))
        raise DataError(f"{path} holds no examples{why}; each line is label TAB text [TAB second text].")
    return examples


def _parse_example(line: str, number: int) -> LabeledExample | BadLine | None:
    """None for a blank line."""
    if not line.strip():
        return None
    columns = line.split("\t")
    if not 2 <= len(columns) <= 3:
        why = f"has {len(columns)} columns; each must be label TAB text [TAB second text]."
        return BadLine("not label TAB text [TAB second text]", number, why)
    if not columns[0].strip() or not columns[1].strip():
        return BadLine("an empty label or text", number, "has an empty label or text; each needs both.")
    return LabeledExample(columns[0].strip(), *columns[1:])


def prepare_labeled(
    config: RunConfig,
    tokenizer: Tokenizer,
    max_length: int,
    cache_dir: Path,
    progress: Progress = ignore_progress,
    accept: Accept = accept_any,
) -> LabeledCorpus:
    """The encoded examples of a run, from `cache_dir` if they are there already; longer ones are truncated."""
    data = config.data
    assert data.labeled is not None
    train, valid = LabeledFile(data.labeled), LabeledFile(data.valid_labeled) if data.valid_labeled else None
    builder = LabeledBuilder(config, train, valid, (tokenizer, tokenizer), progress, max_length)
    return builder.prepare(cache_dir, accept)


@dataclass(frozen=True)
class LabeledFile:
    """A TSV file of labeled examples."""

    path: Path

    @property
    def files(self) -> list[Path]:
        return [self.path]

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True)
class LabeledBuilder(CorpusBuilder[LabeledFile, LabeledReport, LabeledCorpus]):
    """Holds out examples, numbers the labels and encodes the texts with the tokenizer of the pretrained model."""

    max_length: int

    corpus_type = LabeledCorpus
    report_type = LabeledReport

    def settings(self) -> dict[str, Any]:
        return {"valid_size": self.config.data.valid_size, "max_length": self.max_length}

    def build(self, folder: Path) -> tuple[Tokenizers, LabeledReport]:
        assert self.tokenizers is not None
        tokenizer = self.tokenizers[0]
        report = LabeledReport()
        train, valid = self._split(report)
        counts = Counter(example.label for example in train)
        if len(counts) < 2:
            raise DataError(f"{self.train} has one label only ({next(iter(counts))}); a classifier needs two or more.")
        labels = sorted(counts)
        if unknown := sorted({example.label for example in valid} - set(labels)):
            raise DataError(f"the validation set has the label {unknown[0]}, which no training example has; add some.")
        report.kept, report.valid_kept = len(train), len(valid)
        report.labels = {label: counts[label] for label in labels}
        for name, examples in (("train", train), ("valid", valid)):
            rows = [encode_text_pair(tokenizer, each.text, each.second, self.max_length) for each in examples]
            report.truncated += sum(truncated for _, _, truncated in rows)
            writer = PairsWriter(folder, name, (id_type(tokenizer.vocab_size),) * 2)
            writer.append([first for first, _, _ in rows], [second for _, second, _ in rows])
            writer.close()
            numbers = np.array([labels.index(example.label) for example in examples], np.int64)
            (folder / f"{name}.labels").write_bytes(numbers.tobytes())
        (folder / "labels.json").write_text(json.dumps(labels), encoding="utf-8")
        (folder / "valid.json").write_text(json.dumps([asdict(example) for example in valid]), encoding="utf-8")
        return self.tokenizers, report

    def _split(self, report: LabeledReport) -> tuple[list[LabeledExample], list[LabeledExample]]:
        """The training and the validation examples."""
        data = self.config.data
        dropped, valid_dropped = DroppedLines(), DroppedLines()
        report.unreadable, report.valid_unreadable = dropped, valid_dropped
        train = read_labeled(self.train.path, None if data.strict else dropped)
        if self.valid:
            return train, read_labeled(self.valid.path, None if data.strict else valid_dropped)
        hashes = np.array([_hash(example) for example in train], np.uint64)
        held_out = hold_out_pairs(hashes, np.ones(len(train), np.bool_), data, self.config.train.seed)
        examples = list(zip(train, held_out, strict=True))
        return [each for each, out in examples if not out], [each for each, out in examples if out]


def encode_text_pair(
    tokenizer: Tokenizer, text: str, second: str, max_length: int
) -> tuple[list[int], list[int], bool]:
    """Ids of both texts, truncated from the longer one so that they fit with special tokens; and whether they were."""
    first, other = tokenizer.encode(text), tokenizer.encode(second) if second else []
    budget = max(1, max_length - (3 if other else 2))
    if len(first) + len(other) <= budget:
        return first, other, False
    keep_other = max(budget // 2, budget - len(first)) if len(other) > budget // 2 else len(other)
    return first[: budget - keep_other], other[:keep_other], True


def _hash(example: LabeledExample) -> int:
    text = f"{example.text}\t{example.second}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
