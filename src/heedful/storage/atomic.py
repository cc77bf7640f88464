"""Writing so that a crash leaves the old or the new, never a mixture.

Bytes go to a temporary name beside the goal, are forced to the disk, and are renamed; then the rename is forced too.
"""

import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from heedful.errors import FolderError, SettingError


def atomic_write(path: Path, content: bytes | str) -> None:
    """Replace one file as a whole."""
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
    """Refuse a place for a new folder where there is something already."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise SettingError(f"{path} exists already; choose a new folder.")


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A temporary folder to fill, which becomes `path` when the block ends well and vanishes when it does not."""
    temporary = path.parent / f".{path.name}.{os.getpid()}.tmp"
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


@contextmanager
def explain_os_errors(path: Path) -> Iterator[None]:
    """Say in a sentence why `path` could not be written."""
    try:
        yield
    except OSError as error:
        unchanged = "what was there before is unchanged, " if os.path.exists(path) else ""  # noqa: PTH110  a name may be too long for Path
        raise FolderError(
            f"{path} could not be written: {error.strerror or error}; {unchanged}{remedy(path, error)}."
        ) from error


def remedy(path: Path, error: OSError) -> str:
    """What to do about a file or folder that could not be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "make room or choose another place and run again"
    if error.errno == errno.ENOENT:
        return f"make the folder {path.parent} first, or choose another place"
    return {
        errno.EISDIR: "it is a folder, give the name of a file",
        errno.ENOTDIR: "a part of the path is a file, choose another place",
        errno.ENAMETOOLONG: "choose a shorter name",
    }.get(error.errno or 0, "choose a place that you may write to")


def check_output(path: Path) -> None:
    """Refuse a file that could not be written before the work that leads to it is done."""
    with explain_os_errors(path):
        if path.is_dir():
            raise _error(errno.EISDIR)
        if not path.parent.is_dir():
            raise _error(errno.ENOTDIR if path.parent.exists() else errno.ENOENT)
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise _error(errno.EACCES)


def check_folder(path: Path) -> None:
    """Refuse a folder that could not be made or written to, by making a temporary one where it would be."""
    with explain_os_errors(path):
        nearest = next(each for each in (path, *path.absolute().parents) if each.exists())
        with tempfile.TemporaryDirectory(prefix=".", suffix=".tmp", dir=nearest):
            pass


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def sync(path: Path) -> None:
    """Force a file, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def digest(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
