"""Labelled texts -> ids on disk -> batches: what a classifier learns from.

One example a line: label TAB text, or label TAB text TAB second text. Such files are small, so they are read at once.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import tokenizers as library
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.config import RunConfig
from heedful.data.data_report import dropped_lines, dropped_of
from heedful.data.pairs import Pairs, PairsWriter, id_type, map_array, open_pairs
from heedful.data.parallel_corpus import Accept, anything, cache_key, cached, file_digest, strictness
from heedful.data.scan import hold_out_pairs
from heedful.errors import DataError
from heedful.formats.line_files import BadLine, Dropped, DroppedLines, read_good_and_bad_lines
from heedful.text import Specials, Tokenizer

FORMAT = 1
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class LabeledExample:
    """A text, perhaps a second one, and what they were labeled with."""

    label: str
    text: str
    second: str = ""


@dataclass(frozen=True)
class LabeledBatch:
    """(B, T) tokens and types, padded on the right; (B,) numbers of labels."""

    ids: Tensor
    types: Tensor
    labels: Tensor

    def to(self, device: torch.device | str) -> LabeledBatch:
        return replace(self, ids=self.ids.to(device), types=self.types.to(device), labels=self.labels.to(device))


@dataclass
class LabeledReport:
    """What was found in labeled examples, and what became of them."""

    corpus: str = ""
    valid_corpus: str | None = None  # None: held out
    kept: int = 0
    valid_kept: int = 0
    cut: int = 0  # texts that are longer than the model takes
    labels: dict[str, int] = field(default_factory=dict)
    unreadable: dict[str, Dropped] = field(default_factory=dict)
    valid_unreadable: dict[str, Dropped] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """The report for a reader."""
        held = "that left the corpus" if self.valid_corpus is None else f"of {self.valid_corpus}"
        counts = ", ".join(f"{label} {count:,}" for label, count in list(self.labels.items())[:20])
        lines = [
            f"{self.kept:,} examples from {self.corpus} kept for training",
            *(f"  {line}" for line in dropped_lines(self.unreadable, [self.corpus])),
            f"validation: {self.valid_kept:,} examples {held}",
            *(f"  {line}" for line in dropped_lines(self.valid_unreadable, [self.valid_corpus or ""])),
            f"{len(self.labels)} labels: {counts}{', …' if len(self.labels) > 20 else ''}",
        ]
        return lines + ([f"{self.cut:,} texts are longer than the model takes, and were cut"] if self.cut else [])


@dataclass(frozen=True)
class LabeledCorpus:
    """Encoded examples: two texts each, of which the second may be empty, and the number of a label."""

    path: Path
    train: Pairs
    train_labels: Indices
    valid: Pairs
    valid_labels: Indices
    valid_examples: list[LabeledExample]
    labels: tuple[str, ...]
    tokenizer: Tokenizer
    report: LabeledReport
    reused: bool


def read_labeled(path: Path, dropped: DroppedLines | None = None) -> list[LabeledExample]:
    """All examples of a TSV file; lines that are none are counted in `dropped`, without which they are errors."""
    examples = []
    for number, line in enumerate(read_good_and_bad_lines(path), 1):
        found = line if isinstance(line, BadLine) else _example(line, number)
        if isinstance(found, LabeledExample):
            examples.append(found)
        elif found is not None:
            if dropped is None:
                raise found.error(path)
            dropped.add(found)
    if not examples:
        why = "".join(f", {line}" for line in dropped_lines(dropped or {}, [str(path)]))
        raise DataError(f"{path} holds no examples{why}; each line is label TAB text [TAB second text].")
    return examples


def _example(line: str, number: int) -> LabeledExample | BadLine | None:
    """What a line holds; nothing, if it is blank."""
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
    longest: int,
    folder: Path,
    progress: Callable[[str], None],
    accept: Accept = anything,
) -> LabeledCorpus:
    """The encoded examples of a run, from `folder` if they are there already; `longest` is what the model takes.

    `accept` may refuse their name.
    """
    data = config.data
    assert data.labeled is not None
    progress(f"checking {data.labeled}")
    parts = {
        "format": FORMAT,
        "tokenizers": library.__version__,
        "valid_size": data.valid_size,
        **strictness(config),
        "train": file_digest(data.labeled),
        "valid": file_digest(data.valid_labeled) if data.valid_labeled else config.train.seed,
        "text": tokenizer.to_json(),
        "longest": longest,
    }

    def fill(path: Path) -> None:
        _build(config, tokenizer, longest, path)

    name = cache_key(parts)
    accept(name)
    store = cached(folder, name, fill, partial(_open, tokenizer=tokenizer))
    store.report.corpus = str(data.labeled)
    store.report.valid_corpus = str(data.valid_labeled) if data.valid_labeled else None
    return store


def _build(config: RunConfig, tokenizer: Tokenizer, longest: int, folder: Path) -> None:
    data = config.data
    assert data.labeled is not None
    dropped, valid_dropped = DroppedLines(), DroppedLines()
    train = read_labeled(data.labeled, None if data.strict else dropped)
    if data.valid_labeled:
        valid = read_labeled(data.valid_labeled, None if data.strict else valid_dropped)
    else:
        hashes = np.array([_hash(each) for each in train], np.uint64)
        held = hold_out_pairs(hashes, np.ones(len(train), np.bool_), data, config.train.seed)
        valid = [each for each, out in zip(train, held, strict=True) if out]
        train = [each for each, out in zip(train, held, strict=True) if not out]
    counts = Counter(each.label for each in train)
    if len(counts) < 2:
        raise DataError(f"{data.labeled} has one label only ({next(iter(counts))}); a classifier needs two or more.")
    labels = sorted(counts)
    if unknown := sorted({each.label for each in valid} - set(labels)):
        raise DataError(f"the validation set has the label {unknown[0]}, which no training example has; add some.")
    report = LabeledReport(kept=len(train), valid_kept=len(valid), labels={label: counts[label] for label in labels})
    report.unreadable, report.valid_unreadable = dropped, valid_dropped
    for name, examples in (("train", train), ("valid", valid)):
        rows = [encode_text_pair(tokenizer, each.text, each.second, longest) for each in examples]
        report.cut += sum(cut for _, _, cut in rows)
        writer = PairsWriter(folder, name, (id_type(tokenizer.vocab_size),) * 2)
        writer.append([first for first, _, _ in rows], [second for _, second, _ in rows])
        writer.close()
        numbers = np.array([labels.index(each.label) for each in examples], np.int64)
        (folder / f"{name}.labels").write_bytes(numbers.tobytes())
    tokenizer.save(folder / "tokenizer.json")
    (folder / "labels.json").write_text(json.dumps(labels), encoding="utf-8")
    (folder / "valid.json").write_text(json.dumps([asdict(each) for each in valid]), encoding="utf-8")
    (folder / "report.json").write_text(json.dumps(asdict(report)), encoding="utf-8")


def _open(path: Path, reused: bool, tokenizer: Tokenizer) -> LabeledCorpus:
    types = (id_type(tokenizer.vocab_size),) * 2
    valid = json.loads((path / "valid.json").read_text(encoding="utf-8"))
    report = LabeledReport(**json.loads((path / "report.json").read_text(encoding="utf-8")))
    report.unreadable, report.valid_unreadable = dropped_of(report.unreadable), dropped_of(report.valid_unreadable)
    return LabeledCorpus(
        path=path,
        train=open_pairs(path, "train", types),
        train_labels=map_array(path / "train.labels", np.int64),
        valid=open_pairs(path, "valid", types),
        valid_labels=map_array(path / "valid.labels", np.int64),
        valid_examples=[LabeledExample(**each) for each in valid],
        labels=tuple(json.loads((path / "labels.json").read_text(encoding="utf-8"))),
        tokenizer=tokenizer,
        report=report,
        reused=reused,
    )


def encode_text_pair(tokenizer: Tokenizer, text: str, second: str, longest: int) -> tuple[list[int], list[int], bool]:
    """Ids of both texts, cut so that they fit with their frame, the longer one first; and whether that was needed."""
    first, other = tokenizer.encode(text), tokenizer.encode(second) if second else []
    room = max(1, longest - (3 if other else 2))
    over = len(first) + len(other) - room
    if over <= 0:
        return first, other, False
    keep_other = max(room // 2, room - len(first)) if len(other) > room // 2 else len(other)
    return first[: room - keep_other], other[:keep_other], True


def collate_text_pairs(
    rows: Sequence[tuple[Sequence[int], Sequence[int]]], specials: Specials, types: int
) -> tuple[Tensor, Tensor]:
    """-> (B, T) tokens `<s> … </s>` or `<s> … </s> … </s>`, padded, and (B, T) the segment that each belongs to."""
    framed = [[specials.bos, *a, specials.eos, *([*b, specials.eos] if len(b) else [])] for a, b in rows]
    longest = max(map(len, framed), default=0)
    ids = torch.full((len(rows), longest), specials.pad)
    segments = torch.zeros_like(ids)
    for row, (tokens, (first, _)) in enumerate(zip(framed, rows, strict=True)):
        ids[row, : len(tokens)] = torch.tensor(tokens)
        if types > 1:
            segments[row, len(first) + 2 : len(tokens)] = 1
    return ids, segments


def _hash(example: LabeledExample) -> int:
    text = f"{example.text}\t{example.second}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
