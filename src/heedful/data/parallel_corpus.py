"""A corpus, encoded once and kept on disk.

`prepare` reads, checks, learns the vocabulary, encodes, and leaves a folder named after everything that went into it;
the next run with the same files and settings finds it there. Knows files and ids; knows no batches and no torch.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Any, TypeVar

import tokenizers as library

from heedful.config import DataSettings, RunConfig
from heedful.data.data_report import DataReport
from heedful.data.encoding import build
from heedful.data.pairs import Pairs, id_type, open_pairs
from heedful.errors import DataError, FolderError, HeedfulError
from heedful.formats.line_files import ParallelFiles, training_corpus, validation_corpus
from heedful.text import Tokenizer

FORMAT = 1  # changes whenever the same files and settings would be encoded differently
MANIFEST = "manifest.json"
K = TypeVar("K")
Accept = Callable[[str], None]


def anything(name: str) -> None:
    """Accept any encoded corpus."""


@dataclass(frozen=True)
class ParallelCorpus:
    """An encoded corpus. Both tokenizers are one object if the vocabulary is joint."""

    path: Path
    train: Pairs
    valid: Pairs
    valid_text: list[tuple[str, str]]
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    report: DataReport
    reused: bool

    @property
    def joint(self) -> bool:
        return self.source_tokenizer is self.target_tokenizer


def prepare_parallel(
    config: RunConfig,
    folder: Path,
    progress: Callable[[str], None] = lambda message: None,
    tokenizers: tuple[Tokenizer, Tokenizer] | None = None,
    accept: Accept = anything,
) -> ParallelCorpus:
    """The encoded corpus of a run, from `folder` if it is there already.

    `tokenizers` (source and target) are those of a model that is trained further; otherwise they are learned. `accept`
    is told the name of the encoded corpus before anything is encoded, and may refuse it.
    """
    train, valid = training_corpus(config.data), validation_corpus(config.data)
    progress(f"checking {train}")
    name = fingerprint(config, train, valid, tokenizers)
    accept(name)

    def fill(path: Path) -> None:
        build(config, train, valid, tokenizers, path, progress)

    store = cached(folder, name, fill, partial(_open, tokenizers=tokenizers))
    store.report.name(train, valid)
    return store


def cached(folder: Path, name: str, fill: Callable[[Path], None], open_: Callable[[Path, bool], K]) -> K:
    """What is in `folder / name`, if it is there and intact; if not, `fill` writes it. `open_` is told which."""
    path = folder / name
    try:
        with _alone(folder, name) as alone:
            if _intact(path):
                return open_(path, True)
            temporary = folder / f".{name}.{platform.node()}.{os.getpid()}.tmp"
            others = folder.glob(f".{name}.*.tmp") if alone else ()
            for leftover in (path, temporary, *others):  # of a run that was killed, or damaged since
                shutil.rmtree(leftover, ignore_errors=True)
            temporary.mkdir()
            try:
                fill(temporary)
                _seal(temporary)
                try:
                    temporary.rename(path)
                except OSError:
                    if not _intact(path):  # or else somebody was faster, where there are no locks
                        raise
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
            return open_(path, False)
    except OSError as error:
        reason = error.strerror or str(error)
        raise FolderError(f"the encoded corpus cannot be kept in {folder}: {reason}; set data.cache_dir.") from None


def fingerprint(
    config: RunConfig, train: ParallelFiles, valid: ParallelFiles | None, tokenizers: tuple[Tokenizer, Tokenizer] | None
) -> str:
    """A name for everything that the encoded corpus depends on: file contents, not their names or dates."""
    data = config.data.model_dump(include={"valid_size", "max_length", "max_ratio", "deduplicate"})
    data |= strictness(config)
    parts: dict[str, Any] = {
        "format": FORMAT,
        "tokenizers": library.__version__,
        "data": data,
        "train": [file_digest(path) for path in train.files],
        "valid": [file_digest(path) for path in valid.files] if valid else config.train.seed,
        "text": text_settings(config) if tokenizers is None else [_hash(t.to_json()) for t in tokenizers],
    }
    return cache_key(parts)


def strictness(config: RunConfig) -> dict[str, Any]:
    """Whether lines that cannot be read are refused; the usual is not named."""
    return {"strict": True} if config.data.strict else {}


def text_settings(config: RunConfig) -> dict[str, Any]:
    """What a vocabulary depends on; a kind that is not named is learned subwords."""
    return config.text.model_dump(exclude={"kind"} if config.text.kind == "bpe" else set())


def cache_key(parts: Mapping[str, Any]) -> str:
    """A short name for everything that an encoded corpus depends on."""
    return _hash(json.dumps(parts, sort_keys=True))[:16]


def _open(path: Path, reused: bool, tokenizers: tuple[Tokenizer, Tokenizer] | None = None) -> ParallelCorpus:
    """`tokenizers` that were given know more than their files: which of their tokens frame a sequence."""
    report = DataReport.from_json((path / "report.json").read_text(encoding="utf-8"))
    if tokenizers is None:
        source = Tokenizer.load(path / "source.tokenizer.json")
        tokenizers = source, source if report.joint else Tokenizer.load(path / "target.tokenizer.json")
    source, target = tokenizers
    types = (id_type(source.vocab_size), id_type(target.vocab_size))
    texts = json.loads((path / "valid.json").read_text(encoding="utf-8"))
    return ParallelCorpus(
        path=path,
        train=open_pairs(path, "train", types),
        valid=open_pairs(path, "valid", types),
        valid_text=[(source_text, target_text) for source_text, target_text in texts],
        source_tokenizer=source,
        target_tokenizer=target,
        report=report,
        reused=reused,
    )


def _seal(path: Path) -> None:
    files = {file.name: file_digest(file) for file in sorted(path.iterdir())}
    (path / MANIFEST).write_text(json.dumps(files, indent=1), encoding="utf-8")


def _intact(path: Path) -> bool:
    """Whether every file is as it was written."""
    try:
        files = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        return bool(files) and all(file_digest(path / name) == digest for name, digest in files.items())
    except (OSError, ValueError, AttributeError, HeedfulError):
        return False


def file_digest(path: Path) -> str:
    """The hash of what a file holds."""
    with _readable(path) as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def check_files(data: DataSettings) -> None:
    """Refuse a corpus of which a file is missing or cannot be read, before any of them is read."""
    for value in (getattr(data, name) for name in type(data).model_fields if name != "cache_dir"):
        for path in value if isinstance(value, tuple) else [value]:
            if isinstance(path, Path):
                with _readable(path):
                    pass


@contextmanager
def _readable(path: Path) -> Iterator[BufferedReader]:
    """An open file that can be read several times."""
    try:
        if not path.is_file() and path.exists() and not path.is_dir():
            raise DataError(f"{path} is a pipe or device, but a corpus is read several times; write it to a file.")
        with path.open("rb") as file:
            yield file
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; check the path.") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder; give a text file.") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from None


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


@contextmanager
def _alone(folder: Path, name: str) -> Iterator[bool]:
    """Of several processes that want the same store, one builds it and the others wait for it, if there are locks."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # not on this system; the rename is still atomic
        yield False
        return
    with (folder / f".{name}.lock").open("w") as lock:
        alone = False
        with suppress(OSError):  # some cluster file systems have no locks
            fcntl.flock(lock, fcntl.LOCK_EX)
            alone = True
        yield alone
