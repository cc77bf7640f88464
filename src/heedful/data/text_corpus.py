"""Plain text -> one stream of ids on disk, in which every document ends in its end-of-sequence token.

The corpus of language models and masked language models. Text is read in parts, so memory does not grow with the
corpus. Knows documents and ids; knows no blocks, no batches and no torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.config import RunConfig
from heedful.data.corpus import Accept, Corpus, CorpusBuilder, Progress, Tokenizers, accept_any, ignore_progress
from heedful.data.data_report import CorpusReport, describe_dropped_lines
from heedful.data.documents import Documents, HeldOut, hold_out_documents
from heedful.data.pairs import Ids, id_type, map_array
from heedful.errors import DataError
from heedful.formats.line_files import DroppedLines
from heedful.text import Tokenizer, train_plain_vocabulary, train_vocabulary
from heedful.text.vocabulary import MASK

MAX_VOCABULARY_CHARACTERS = 200_000_000  # the vocabulary of a larger text is trained on its beginning
CHUNK_CHARACTERS = 4_000_000  # encoded at once


@dataclass
class TextReport(CorpusReport):
    """Counts of documents, bytes and tokens."""

    documents: int = 0
    tokens: int = 0
    bytes: int = 0
    tail: bool = False  # whether the end of the longest document is held out
    valid_documents: int = 0
    valid_tokens: int = 0
    valid_bytes: int = 0  # UTF-8 text, plus one for the end of each document
    vocab_size: int = 0
    kind: str = "bpe"

    def lines(self) -> list[str]:
        if self.valid_corpus is not None:
            valid = f"{_documents(self.valid_documents)} read from {self.valid_corpus}"
        elif self.tail:
            valid = "the end of the longest document, held out from the training data"
        else:
            valid = f"{_documents(self.valid_documents)} held out from the training data, drawn with train.seed"
        bytes_per_token = self.valid_bytes / max(1, self.valid_tokens)
        return [
            f"{_documents(self.documents)} ({self.bytes:,} bytes) read from {self.corpus} for training",
            *self.unreadable_lines(),
            f"validation set: {valid} ({self.valid_bytes:,} bytes)",
            *self.valid_unreadable_lines(),
            f"vocabulary: {self.vocab_size:,} tokens ({self.kind}), {bytes_per_token:.2f} bytes per token",
            f"{self.tokens:,} tokens for training, {self.valid_tokens:,} for validation",
        ]


def _documents(number: int) -> str:
    return f"{number:,} document{'' if number == 1 else 's'}"


@dataclass(frozen=True, kw_only=True)
class TextCorpus(Corpus[TextReport]):
    """Encoded text: the tokens of all documents, one after the other."""

    train: Ids
    valid: Ids

    @classmethod
    def contents(cls, path: Path, tokenizers: Tokenizers) -> dict[str, Any]:
        kind = id_type(tokenizers[0].vocab_size)
        return {
            "train": map_array(path / "train.ids", kind),
            "valid": map_array(path / "valid.ids", kind),
        }


def prepare_text(
    config: RunConfig,
    cache_dir: Path,
    progress: Progress = ignore_progress,
    accept: Accept = accept_any,
    tokenizer: Tokenizer | None = None,
    masked: bool = False,
) -> TextCorpus:
    """The encoded text of a run, from `cache_dir` if it is there already.

    The vocabulary of a `masked` language model has a mask token.
    """
    data = config.data
    train = Documents(data.text, data.documents, data.strict)
    valid = Documents(data.valid_text, data.documents, data.strict) if data.valid_text else None
    tokenizers = (tokenizer, tokenizer) if tokenizer else None
    return TextBuilder(config, train, valid, tokenizers, progress, masked).prepare(cache_dir, accept)


@dataclass(frozen=True)
class TrainingText:
    """The text that is not held out; can be iterated more than once."""

    documents: Documents
    held_out: HeldOut

    def __iter__(self) -> Iterator[str]:
        remaining = MAX_VOCABULARY_CHARACTERS
        for part, valid in self.held_out.divide(self.documents.parts()):
            if not valid and remaining > 0:
                remaining -= len(part.text)
                yield part.text


@dataclass(frozen=True)
class TextBuilder(CorpusBuilder[Documents, TextReport, TextCorpus]):
    """Holds out documents, trains the vocabulary and encodes the text."""

    masked: bool

    corpus_type = TextCorpus
    report_type = TextReport

    def settings(self) -> dict[str, Any]:
        return self.config.data.model_dump(include={"documents", "valid_size"}) | {"masked": self.masked}

    def build(self, folder: Path) -> tuple[Tokenizers, TextReport]:
        dropped, valid_dropped = DroppedLines(), DroppedLines()
        if self.valid is not None:
            _document_sizes(self.valid, valid_dropped)  # raises an error before anything is encoded
        sizes = _document_sizes(self.train, dropped)
        data = self.config.data
        held_out = HeldOut() if self.valid else hold_out_documents(sizes, data.valid_size, self.config.train.seed)
        if self.tokenizers is None:
            self.progress(f"training a vocabulary ({self.config.text.kind}) on {int(sizes.sum()):,} bytes")
            tokenizer = self._train_vocabulary(TrainingText(self.train, held_out))
        else:
            tokenizer = self.tokenizers[0]
        train, valid = (IdWriter(folder / f"{name}.ids", tokenizer) for name in ("train", "valid"))
        for part, is_valid in held_out.divide(self.train.parts()):
            (valid if is_valid else train).append(part.text, part.last)
        for part in self.valid.parts() if self.valid else ():
            valid.append(part.text, part.last)
        for name, writer, files in (("training", train, self.train), ("validation", valid, self.valid or self.train)):
            writer.close()
            if writer.tokens < 10:
                raise DataError(f"{files} has {writer.tokens} tokens for the {name} set; give a longer text.")
            self.progress(f"encoded {writer.tokens:,} tokens for the {name} set")
        report = TextReport(
            unreadable=dropped,
            valid_unreadable=valid_dropped,
            documents=train.documents,
            tokens=train.tokens,
            bytes=train.bytes,
            tail=held_out.tail is not None,
            valid_documents=valid.documents,
            valid_tokens=valid.tokens,
            valid_bytes=valid.bytes,
            vocab_size=tokenizer.vocab_size,
            kind=self.config.text.kind,
        )
        return (tokenizer, tokenizer), report

    def _train_vocabulary(self, training_text: TrainingText) -> Tokenizer:
        """Subwords of a masked language model mark the start of a word, so that whole words can be masked."""
        text = self.config.text
        extra = [MASK] if self.masked else []
        if self.masked and text.kind == "bpe":
            lines = [line for part in training_text for line in part.split("\n")]
            return train_vocabulary(lines, text.vocab_size, text.lowercase, extra)
        return train_plain_vocabulary(training_text, text.kind, text.vocab_size, text.lowercase, extra)


def _document_sizes(documents: Documents, dropped: DroppedLines) -> NDArray[np.int64]:
    """The bytes of each document; `dropped` counts lines that cannot be read."""
    sizes: list[int] = []
    for part in documents.parts(dropped):
        if part.document == len(sizes):
            sizes.append(0)
        sizes[part.document] += len(part.text.encode())
    if not sizes:
        why = "".join(f", {line}" for line in describe_dropped_lines(dropped, list(map(str, documents.files))))
        raise DataError(f"{documents} holds no text{why}; give a file of UTF-8 text with at least a few lines.")
    return np.array(sizes, np.int64)


class IdWriter:
    """Encodes texts in chunks and appends their ids to a file."""

    def __init__(self, path: Path, tokenizer: Tokenizer) -> None:
        self.file = path.open("wb")
        self.tokenizer = tokenizer
        self.kind = id_type(tokenizer.vocab_size)
        self.documents = self.tokens = self.bytes = self.buffered = 0
        self.texts: list[tuple[str, bool]] = []

    def append(self, text: str, last: bool) -> None:
        """Add a part of a document; after its `last` part comes the end-of-sequence token."""
        self.texts.append((text, last))
        self.documents += last
        self.bytes += len(text.encode()) + last
        self.buffered += len(text)
        if self.buffered > CHUNK_CHARACTERS:
            self.flush()

    def flush(self) -> None:
        rows = self.tokenizer.encode_batch([text for text, _ in self.texts])
        for row, (_, last) in zip(rows, self.texts, strict=True):
            self.file.write(np.array([*row, self.tokenizer.eos_id] if last else row, self.kind).tobytes())
            self.tokens += len(row) + last
        self.texts, self.buffered = [], 0

    def close(self) -> None:
        self.flush()
        self.file.close()
