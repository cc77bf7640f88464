"""Atomic writes: after a crash the old or the new content is there, never a mixture.

Content is written to a temporary name in the same folder, synced and renamed; then the folder is synced.
"""

import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from heedful.errors import FolderError, SettingError


def atomic_write(path: Path, content: bytes | str) -> None:
    """Replace a file atomically."""
    data = content.encode() if isinstance(content, str) else content
    temporary = path.parent / f".{path.name}.{os.getpid()}.tmp"
    with explain_os_errors(path):
        try:
            temporary.write_bytes(data)
            sync(temporary)
            temporary.replace(path)
            sync(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def check_output_path(path: Path) -> None:
    """Refuse a path for a new folder that is taken."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise SettingError(f"{path} exists already; choose a new folder.")


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder; it becomes `path` at the end of the block.

    After an exception it is deleted, and so are the parents that were made for it.
    """
    temporary = path.parent / f".{path.name}.{os.getpid()}.tmp"
    made = [parent for parent in path.parents if not parent.exists()]
    with explain_os_errors(path):
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            temporary.mkdir(parents=True)
            yield temporary
            for file in temporary.iterdir():
                sync(file)
            sync(temporary)
            if path.exists():
                shutil.rmtree(path)
            temporary.replace(path)
            sync(path.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            with suppress(OSError):  # not empty: the folder, or what another process wrote
                for parent in made:
                    parent.rmdir()


@contextmanager
def explain_os_errors(path: Path) -> Iterator[None]:
    """Turn an OSError into a FolderError that says why `path` could not be written."""
    try:
        yield
    except OSError as error:
        exists = os.path.exists(path) and error.errno != errno.EISDIR  # noqa: PTH110  a name may be too long for Path
        unchanged = "its previous content is unchanged, " if exists else ""
        raise FolderError(
            f"{path} could not be written: {error.strerror or error}; {unchanged}{remedy(path, error)}."
        ) from error


def remedy(path: Path, error: OSError) -> str:
    """What the user can do about a file or folder that could not be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free some space or choose another path, and run again"
    if error.errno == errno.ENOENT:
        return f"create the folder {path.parent} first, or choose another path"
    return {
        errno.EISDIR: "it is a folder, give the name of a file",
        errno.ENOTDIR: "a part of the path is a file, choose another path",
        errno.ENAMETOOLONG: "choose a shorter name",
    }.get(error.errno or 0, "choose a path that you may write to")


def check_output(path: Path) -> None:
    """Refuse a file that cannot be written, before its content is computed."""
    with explain_os_errors(path):
        if path.is_dir():
            raise _error(errno.EISDIR)
        if not path.parent.is_dir():
            raise _error(errno.ENOTDIR if path.parent.exists() else errno.ENOENT)
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise _error(errno.EACCES)


def check_folder(path: Path) -> None:
    """Refuse a folder that cannot be created or written to; tried with a temporary folder there."""
    with explain_os_errors(path):
        nearest = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
        with tempfile.TemporaryDirectory(prefix=".", suffix=".tmp", dir=nearest):
            pass


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def sync(path: Path) -> None:
    """Sync a file, or the entries of a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def digest(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
