"""The tensors of a NumPy .npz archive by name; nothing in it is unpickled or decompressed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import IO, Any, NamedTuple
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import numpy as np
import torch
from numpy.lib import format as npy
from torch import Tensor

from heedful.errors import FolderError, quote
from heedful.interop.weight_files import ForeignWeights

MOST_TENSORS = 100_000
ERRORS = (BadZipFile, ValueError, OSError, EOFError, NotImplementedError, RuntimeError, KeyError)


class Archive(NamedTuple):
    """The float tensors of an archive, and its other arrays, which hold text."""

    weights: ForeignWeights
    texts: dict[str, bytes]


def open_archive(file: Path, most_text: int) -> Archive:
    """Find all arrays; a size that the archive contradicts is refused before an array is read."""
    try:
        with ZipFile(file) as archive:
            members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
            if len(members) > MOST_TENSORS:
                raise FolderError(f"{file} lists {len(members):,} arrays; a model has not that many.")
            headers = {name: _header(archive, member) for name, member in members.items()}
            texts = {
                name: _read(archive, members[name]).tobytes().rstrip(b"\0")
                for name, (_, dtype) in headers.items()
                if dtype.kind in "iu" and members[name].file_size <= most_text
            }
    except ERRORS as error:
        raise _damaged(file, error) from None

    def get(name: str) -> Tensor:
        try:
            with ZipFile(file) as archive:
                return torch.from_numpy(_read(archive, members[name]))
        except ERRORS as error:
            raise _damaged(file, error) from None

    shapes = {name: shape for name, (shape, dtype) in headers.items() if dtype.kind == "f"}
    return Archive(ForeignWeights(file, shapes, get), texts)


def _header(archive: ZipFile, member: ZipInfo) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of an array, whose values must fill the rest of the member."""
    if member.compress_type != ZIP_STORED:
        raise ValueError(f"{quote(member.filename)} is compressed")
    with archive.open(member) as content:
        version = npy.read_magic(content)
        read_header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[version]
        shape, _, dtype = read_header(content)
        if dtype.hasobject or math.prod(shape) * dtype.itemsize != member.file_size - content.tell():
            raise ValueError(f"{quote(member.filename)} has another size than its shape")
    return shape, dtype


def _read(archive: ZipFile, member: ZipInfo) -> np.ndarray[Any, Any]:
    content: IO[bytes]
    with archive.open(member) as content:
        array: np.ndarray[Any, Any] = npy.read_array(content, allow_pickle=False)
        return array


def _damaged(file: Path, error: Exception) -> FolderError:
    return FolderError(f"{file} is damaged or no model of Marian ({quote(str(error))}); copy it again.")
