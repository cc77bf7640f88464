"""Plain text, encoded once and kept on disk: one stream of tokens in which every document ends in its end token.

The opposite number of `store` for text without translations. Read part by part, so memory does not grow with the text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import tokenizers as library
from numpy.typing import NDArray

from heedful.config import RunConfig
from heedful.data.data_report import dropped_lines, dropped_of
from heedful.data.documents import Documents, HeldOut, hold_out_documents
from heedful.data.pairs import Ids, id_type, map_array
from heedful.data.parallel_corpus import Accept, anything, cache_key, cached, file_digest, strictness, text_settings
from heedful.errors import DataError, SettingError
from heedful.formats.line_files import Dropped, DroppedLines
from heedful.text import Tokenizer, train_plain_vocabulary, train_vocabulary

FORMAT = 2  # changes whenever the same files and settings would be encoded differently
MASK = "<mask>"
LEARN_FROM = 200_000_000  # characters; a vocabulary does not get better from more
CHUNK = 4_000_000  # characters that are encoded at once
Progress = Callable[[str], None]


@dataclass
class TextReport:
    """What was found in a text, and what became of it."""

    corpus: str = ""
    documents: int = 0
    tokens: int = 0
    bytes: int = 0
    valid_corpus: str | None = None  # None: held out
    tail: bool = False  # whether the end of the longest document was held out
    valid_documents: int = 0
    valid_tokens: int = 0
    valid_bytes: int = 0  # text, and one for the end of each document
    vocab_size: int = 0
    kind: str = "bpe"
    files: list[str] = field(default_factory=list)
    valid_files: list[str] = field(default_factory=list)
    unreadable: dict[str, Dropped] = field(default_factory=dict)
    valid_unreadable: dict[str, Dropped] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """The report for a reader."""
        each = self.valid_bytes / max(1, self.valid_tokens)
        if self.valid_corpus is not None:
            held = f"{self.valid_documents:,} documents of {self.valid_corpus}"
        elif self.tail:
            held = "the end of the longest document, which left the text"
        else:
            held = f"{self.valid_documents:,} whole documents that left the text, drawn by train.seed"
        return [
            f"{self.documents:,} documents with {self.bytes:,} bytes read from {self.corpus} for training",
            *(f"  {line}" for line in dropped_lines(self.unreadable, self.files)),
            f"validation: {held}: {self.valid_bytes:,} bytes",
            *(f"  {line}" for line in dropped_lines(self.valid_unreadable, self.valid_files)),
            f"vocabulary: {self.vocab_size:,} tokens ({self.kind}), {each:.2f} bytes a token",
            f"{self.tokens:,} tokens for training, {self.valid_tokens:,} for validation",
        ]


@dataclass(frozen=True)
class TextCorpus:
    """An encoded text: the tokens of all documents, one after the other."""

    path: Path
    train: Ids
    valid: Ids
    tokenizer: Tokenizer
    report: TextReport
    reused: bool


def prepare_text(
    config: RunConfig,
    folder: Path,
    progress: Progress = lambda message: None,
    tokenizer: Tokenizer | None = None,
    accept: Accept = anything,
    masked: bool = False,
) -> TextCorpus:
    """The encoded text of a run, from `folder` if it is there already; `accept` may refuse its name.

    The vocabulary of a `masked` language model has a mask token.
    """
    data = config.data
    train = Documents(data.text, data.documents, data.strict)
    valid = Documents(data.valid_text, data.documents, data.strict) if data.valid_text else None
    if valid is not None and data.valid_size is not None:
        raise SettingError(
            f"data.valid_size ({data.valid_size}) holds out a part of the text, but data.valid_text ({valid}) is given"
            " as well; remove one of the two."
        )
    progress(f"checking {train}")
    parts = {
        "format": FORMAT,
        "tokenizers": library.__version__,
        "data": data.model_dump(include={"documents", "valid_size"}) | strictness(config),
        "train": [file_digest(path) for path in train.files],
        "valid": [file_digest(path) for path in valid.files] if valid else config.train.seed,
        "text": text_settings(config) if tokenizer is None else tokenizer.to_json(),
        "masked": masked,
    }

    def fill(path: Path) -> None:
        _build(config, train, valid, tokenizer, masked, path, progress)

    name = cache_key(parts)
    accept(name)
    store = cached(folder, name, fill, partial(_open, tokenizer=tokenizer))
    report = store.report
    report.corpus, report.valid_corpus = str(train), str(valid) if valid else None
    report.files = [str(path) for path in train.files]
    report.valid_files = [str(path) for path in valid.files] if valid else []
    return store


def _open(path: Path, reused: bool, tokenizer: Tokenizer | None = None) -> TextCorpus:
    tokenizer = tokenizer or Tokenizer.load(path / "tokenizer.json")
    report = TextReport(**json.loads((path / "report.json").read_text(encoding="utf-8")))
    report.unreadable, report.valid_unreadable = dropped_of(report.unreadable), dropped_of(report.valid_unreadable)
    kind = id_type(tokenizer.vocab_size)
    return TextCorpus(
        path, map_array(path / "train.ids", kind), map_array(path / "valid.ids", kind), tokenizer, report, reused
    )


def _build(
    config: RunConfig,
    train: Documents,
    valid: Documents | None,
    tokenizer: Tokenizer | None,
    masked: bool,
    folder: Path,
    progress: Progress,
) -> None:
    dropped, valid_dropped = DroppedLines(), DroppedLines()
    if valid is not None:
        _sizes(valid, valid_dropped)  # what cannot be validated is not encoded
    sizes = _sizes(train, dropped)
    held = HeldOut() if valid else hold_out_documents(sizes, config.data.valid_size, config.train.seed)
    if tokenizer is None:
        progress(f"learning a vocabulary ({config.text.kind}) from {int(sizes.sum()):,} bytes")
        tokenizer = _learn(config, Kept(train, held), masked)
    tokenizer.save(folder / "tokenizer.json")
    report = TextReport(kind=config.text.kind, vocab_size=tokenizer.vocab_size, tail=held.tail is not None)
    report.unreadable, report.valid_unreadable = dropped, valid_dropped
    writers = {name: _Writer(folder / f"{name}.ids", tokenizer) for name in ("train", "valid")}
    for part, out in held.divide(train.parts()):
        writers["valid" if out else "train"].append(part.text, part.last)
    for part in valid.parts() if valid else ():
        writers["valid"].append(part.text, part.last)
    for name, writer in writers.items():
        writer.close()
        if writer.tokens < 10:
            where = str(valid or train) if name == "valid" else str(train)
            raise DataError(f"{where} has {writer.tokens} tokens for the {name} set; give a longer text.")
        progress(f"encoded {writer.tokens:,} tokens for the {name} set")
    done, kept = writers["train"], writers["valid"]
    report.documents, report.tokens, report.bytes = done.documents, done.tokens, done.bytes
    report.valid_documents, report.valid_tokens, report.valid_bytes = kept.documents, kept.tokens, kept.bytes
    (folder / "report.json").write_text(json.dumps(asdict(report)), encoding="utf-8")


@dataclass(frozen=True)
class Kept:
    """The text that stays for training; can be read again and again."""

    documents: Documents
    held: HeldOut

    def __iter__(self) -> Iterator[str]:
        left = LEARN_FROM
        for part, out in self.held.divide(self.documents.parts()):
            if not out and left > 0:
                left -= len(part.text)
                yield part.text


def _learn(config: RunConfig, kept: Kept, masked: bool) -> Tokenizer:
    """For an encoder, words are told apart by the blanks before them, so that whole ones can be hidden."""
    text = config.text
    extra = [MASK] if masked else []
    if masked and text.kind == "bpe":
        lines = [line for part in kept for line in part.split("\n")]
        return train_vocabulary(lines, text.vocab_size, text.lowercase, extra)
    return train_plain_vocabulary(kept, text.kind, text.vocab_size, text.lowercase, extra)


def _sizes(documents: Documents, dropped: DroppedLines) -> NDArray[np.int64]:
    """Bytes of each document; lines that cannot be read are counted in `dropped`."""
    sizes: list[int] = []
    for part in documents.parts(dropped):
        if part.document == len(sizes):
            sizes.append(0)
        sizes[part.document] += len(part.text.encode())
    if not sizes:
        why = "".join(f", {line}" for line in dropped_lines(dropped, list(map(str, documents.files))))
        raise DataError(f"{documents} holds no text{why}; give a file of UTF-8 text with at least a few lines.")
    return np.array(sizes, np.int64)


class _Writer:
    """Appends texts to a file of ids, many at a time."""

    def __init__(self, path: Path, tokenizer: Tokenizer) -> None:
        self.file = path.open("wb")
        self.tokenizer = tokenizer
        self.kind = id_type(tokenizer.vocab_size)
        self.documents = self.tokens = self.bytes = self.waiting = 0
        self.texts: list[tuple[str, bool]] = []

    def append(self, text: str, last: bool) -> None:
        self.texts.append((text, last))
        self.documents += last
        self.bytes += len(text.encode()) + last
        self.waiting += len(text)
        if self.waiting > CHUNK:
            self.write()

    def write(self) -> None:
        rows = self.tokenizer.encode_batch([text for text, _ in self.texts])
        for row, (_, last) in zip(rows, self.texts, strict=True):
            self.file.write(np.array([*row, self.tokenizer.eos_id] if last else row, self.kind).tobytes())
            self.tokens += len(row) + last
        self.texts, self.waiting = [], 0

    def close(self) -> None:
        self.write()
        self.file.close()
