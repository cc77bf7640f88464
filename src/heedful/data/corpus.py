"""What all encoded corpora share: a folder in the cache, tokenizers, a report; and how that folder is built or opened.

A `CorpusBuilder` knows the files and settings of a corpus. `prepare` hashes both, and opens the folder of that name in
the cache, or builds it. Subclasses say which settings matter and what is encoded. Knows no batches and no torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import tokenizers as tokenizers_library

from heedful.config import RunConfig
from heedful.data.cache import cache_key, cached, file_digest, text_digest
from heedful.data.data_report import CorpusFiles, CorpusReport
from heedful.errors import SettingError
from heedful.text import Tokenizer

FORMAT = 4  # raised whenever the same files and settings are encoded differently
REPORT, SOURCE_TOKENIZER, TARGET_TOKENIZER = "report.json", "source.tokenizer.json", "target.tokenizer.json"

Progress = Callable[[str], None]
Accept = Callable[[str], None]  # gets the name of an encoded corpus before anything is encoded; may raise
Tokenizers = tuple[Tokenizer, Tokenizer]  # of source and target; one object if the vocabulary is shared


F = TypeVar("F", bound=CorpusFiles)
R = TypeVar("R", bound=CorpusReport)
C = TypeVar("C", bound="Corpus[Any]")


def accept_any(name: str) -> None:
    """Accept any encoded corpus."""


def ignore_progress(message: str) -> None:
    """Show no progress."""


class CorpusCache(NamedTuple):
    """The folder of encoded corpora, and what hears of the work and of the name of a corpus."""

    folder: Path
    progress: Progress = ignore_progress
    accept: Accept = accept_any


@dataclass(frozen=True, kw_only=True)
class Corpus(ABC, Generic[R]):
    """An encoded corpus in a folder of the cache."""

    path: Path
    tokenizers: Tokenizers
    report: R
    reused: bool  # whether the folder was there already

    @classmethod
    def open(cls, path: Path, tokenizers: Tokenizers, report: R, reused: bool) -> Self:
        """Map the files of the folder `path`."""
        return cls(path=path, tokenizers=tokenizers, report=report, reused=reused, **cls.contents(path, tokenizers))

    @classmethod
    @abstractmethod
    def contents(cls, path: Path, tokenizers: Tokenizers) -> dict[str, Any]:
        """What a subclass reads from the folder, by the name of its attribute."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of a corpus that has one."""
        return self.tokenizers[1]


@dataclass(frozen=True)
class CorpusBuilder(ABC, Generic[F, R, C]):
    """The files and settings of a corpus, and how to encode them."""

    config: RunConfig
    train: F
    valid: F | None  # None: part of the training data is held out
    tokenizers: Tokenizers | None  # those of an existing model; None: vocabularies are trained on the corpus
    progress: Progress

    corpus_type: ClassVar[type[Any]]
    report_type: ClassVar[type[CorpusReport]]

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The settings of this kind of corpus that the encoded ids depend on."""

    @abstractmethod
    def build(self, folder: Path) -> tuple[Tokenizers, R]:
        """Write the encoded training and validation sets to `folder`."""

    def prepare(self, cache_dir: Path, accept: Accept = accept_any) -> C:
        """Open the encoded corpus in `cache_dir`, or build it there."""
        size = self.config.data.valid_size
        if self.valid is not None and size is not None:
            raise SettingError(
                f"data.valid_size ({size}) holds out a part of the corpus, but validation files ({self.valid}) are"
                " given as well; remove one of the two."
            )
        self.progress(f"checking {self.train}")
        name = self.fingerprint()
        accept(name)
        corpus: C = cached(cache_dir, name, self._write, self._open)
        corpus.report.set_files(self.train, self.valid)
        return corpus

    def fingerprint(self) -> str:
        """A hash of everything that the encoded corpus depends on: the content of files, not their names or dates."""
        parts = {
            "kind": self.corpus_type.__name__,
            "format": FORMAT,
            "tokenizers": tokenizers_library.__version__,
            "settings": self.settings() | {"strict": self.config.data.strict},
            "train": [file_digest(path) for path in self.train.files],
            "valid": [file_digest(path) for path in self.valid.files] if self.valid else self.config.train.seed,
            "text": [text_digest(tokenizer.to_json()) for tokenizer in self.tokenizers]
            if self.tokenizers
            else self.config.text.model_dump(),
        }
        return cache_key(parts)

    def _write(self, folder: Path) -> None:
        (source, target), report = self.build(folder)
        source.save(folder / SOURCE_TOKENIZER)
        if source.to_json() != target.to_json():
            target.save(folder / TARGET_TOKENIZER)
        (folder / REPORT).write_text(report.to_json(), encoding="utf-8")

    def _open(self, folder: Path, reused: bool) -> C:
        report = self.report_type.from_json((folder / REPORT).read_text(encoding="utf-8"))
        # The tokenizers of an existing model also know their special tokens, which the files do not contain.
        tokenizers = self.tokenizers or _load_tokenizers(folder)
        corpus: C = self.corpus_type.open(folder, tokenizers, report, reused)
        return corpus


def _load_tokenizers(folder: Path) -> Tokenizers:
    source = Tokenizer.load(folder / SOURCE_TOKENIZER)
    target = folder / TARGET_TOKENIZER
    return source, Tokenizer.load(target) if target.exists() else source
