"""A disk cache of folders, each named after a hash of everything that its content depends on.

Used for encoded corpora and for what is computed from them. A folder is written under a temporary name, sealed with a
manifest of digests and renamed, so a reader sees either all of it or nothing. Knows no corpus, no ids and no torch.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from heedful.errors import FolderError, HeedfulError
from heedful.formats.line_files import open_bytes

MANIFEST = "manifest.json"
T = TypeVar("T")


def cached(folder: Path, name: str, write: Callable[[Path], None], open_: Callable[[Path, bool], T]) -> T:
    """Open `folder / name`; if it is missing or damaged, `write` it first.

    `write` gets an empty folder; `open_` gets the path and whether the content was there already.
    """
    path = folder / name
    try:
        with _lock(folder, name) as locked:
            if _intact(path):
                return open_(path, True)
            temporary = folder / f".{name}.{platform.node()}.{os.getpid()}.tmp"
            leftovers = folder.glob(f".{name}.*.tmp") if locked else ()  # of processes that were killed
            for leftover in (path, temporary, *leftovers):
                shutil.rmtree(leftover, ignore_errors=True)
            temporary.mkdir()
            try:
                write(temporary)
                _seal(temporary)
                try:
                    temporary.rename(path)
                except OSError:
                    if not _intact(path):  # without locks, another process may have written the same folder first
                        raise
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
            return open_(path, False)
    except OSError as error:
        reason = error.strerror or str(error)
        raise FolderError(f"the encoded corpus cannot be written to {folder}: {reason}; set data.cache_dir.") from None


def cache_key(parts: Mapping[str, Any]) -> str:
    """A short hash of everything that a cached folder depends on."""
    return text_digest(json.dumps(parts, sort_keys=True))[:16]


def text_digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def file_digest(path: Path) -> str:
    """The hash of a file's content."""
    with open_bytes(path) as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def _seal(path: Path) -> None:
    digests = {file.name: file_digest(file) for file in sorted(path.iterdir())}
    (path / MANIFEST).write_text(json.dumps(digests, indent=1), encoding="utf-8")


def _intact(path: Path) -> bool:
    """Whether every file has the content that the manifest says."""
    try:
        digests = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        return bool(digests) and all(file_digest(path / name) == digest for name, digest in digests.items())
    except (OSError, ValueError, AttributeError, HeedfulError):
        return False


@contextmanager
def _lock(folder: Path, name: str) -> Iterator[bool]:
    """An exclusive lock on one name: other processes wait until it is written. False where locks are unavailable."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # Windows; the rename is still atomic
        yield False
        return
    with (folder / f".{name}.lock").open("w") as lock:
        locked = False
        with suppress(OSError):  # some cluster file systems have no locks
            fcntl.flock(lock, fcntl.LOCK_EX)
            locked = True
        yield locked
