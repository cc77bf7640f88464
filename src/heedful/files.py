"""Safe reading of files in untrusted folders: regular files of plausible sizes, inside the folder.

Model folders (native and converted), checkpoints and every file beside the weights are opened through `find`.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from heedful.errors import FolderError, quote

LARGEST = 1 << 62
MOST_JSON = 4 << 20  # maximum bytes of a JSON file


def find(folder: Path, name: str, most: int = LARGEST) -> Path | None:
    """The path of a file in the folder, or None if it does not exist; an error if it has more than `most` bytes.

    A symbolic link may point to a file of the same folder, or into the blobs of a Hugging Face cache. A pipe, device,
    socket or folder is refused before it is opened, because opening may block.
    """
    if name in ("", ".", "..") or not set(name).isdisjoint('/\\\0:*?"<>|'):
        raise FolderError(
            f"{folder} refers to a file called {quote(name)}; only plain file names in the same folder are allowed."
        )
    file = folder / name
    try:
        real = file.resolve(strict=True)
        status = real.stat()
    except FileNotFoundError:
        if file.is_symlink():
            raise FolderError(f"{file} is a link to something that is not there; copy the folder again.") from None
        return None
    except (OSError, RuntimeError):
        raise FolderError(f"{file} cannot be read: its name or the link behind it leads nowhere.") from None
    parent = folder.resolve()
    if real.parent != parent and not _in_cache(real, parent):
        raise FolderError(f"{file} is a link out of its folder; copy what it points to into the folder.")
    if not stat.S_ISREG(status.st_mode) or not os.access(real, os.R_OK):
        raise FolderError(f"{file} is not a plain file that may be read; copy the folder again.")
    if status.st_size > most:
        raise FolderError(f"{file} has {status.st_size:,} bytes, and more than {most:,} make no sense there.")
    return file


def _in_cache(real: Path, folder: Path) -> bool:
    """snapshots/<commit>/name -> blobs/<hash>: the layout of Hugging Face's download cache."""
    return folder.parent.name == "snapshots" and real.parent == folder.parent.parent / "blobs"


def read_json(folder: Path, name: str, most: int = MOST_JSON) -> dict[str, Any] | None:
    """Read a JSON object of at most `most` bytes, or None if the file does not exist."""
    file = find(folder, name)
    if file is None:
        return None
    try:
        if (size := file.stat().st_size) > most:
            raise FolderError(f"{file} has {size:,} bytes; a file of settings is not that large.")
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise FolderError(f"{file} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise FolderError(f"{file} is not valid JSON ({error}); the folder is damaged.") from None
    if not isinstance(content, dict):
        raise FolderError(f"{file} holds a JSON {type(content).__name__} where an object is expected.")
    return content


def read_text(folder: Path, name: str, most: int) -> str | None:
    """Read a UTF-8 text file of at most `most` bytes, or None if it does not exist."""
    file = find(folder, name, most)
    if file is None:
        return None
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise FolderError(f"{file} is not UTF-8 text; copy the folder again.") from None
    except OSError as error:
        raise FolderError(f"{file} cannot be read: {error.strerror}.") from None
