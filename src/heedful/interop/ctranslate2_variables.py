"""Reads model.bin of a CTranslate2 folder: named variables in float32, float16, bfloat16, int16 or int8.

The file is untrusted: every count and size is compared with the file before it is used, and no variable is read before
all of them have been found.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from heedful.errors import FolderError, quote
from heedful.files import find
from heedful.interop.weight_files import ForeignWeights

FILE = "model.bin"
VERSIONS = range(4, 7)  # of the binary format; earlier ones name no type of a variable
MOST_NAME, MOST_VARIABLES, MOST_RANK = 1000, 100_000, 4
# Numbered as in the file; bfloat16 is read as the upper halves of float32.
TYPES: dict[int, np.dtype[Any]] = {
    0: np.dtype("<f4"),
    1: np.dtype("i1"),
    2: np.dtype("<i2"),
    3: np.dtype("<i4"),
    4: np.dtype("<f2"),
}
INT8, BFLOAT16 = 1, 5
QUANTIZED = ("i1", "<i2")  # weights of these types have a scale
SCALE = "_scale"  # suffix of its name

Array = npt.NDArray[Any]


class Variable(NamedTuple):
    """Where the values of a variable are in the file."""

    shape: tuple[int, ...]
    dtype: int
    offset: int

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Variables:
    """The content of a model.bin: what it specifies, its variables, and other names of some."""

    where: Path
    specification: str
    revision: int
    variables: dict[str, Variable]
    aliases: dict[str, str]

    def names(self) -> list[str]:
        return [*self.variables, *self.aliases]

    def find(self, name: str) -> Variable | None:
        """A variable under its own or another name; equal variables are stored once."""
        return self.variables.get(self.aliases.get(name, name))

    def array(self, name: str) -> Array:
        """The values of a variable as they are stored."""
        variable = self.variables[self.aliases.get(name, name)]
        stored = np.dtype("<u2") if variable.dtype == BFLOAT16 else TYPES[variable.dtype]
        with self.where.open("rb") as file:
            array: Array = np.fromfile(file, stored, variable.size, offset=variable.offset)
        if variable.dtype == BFLOAT16:
            array = (array.astype(np.uint32) << 16).view(np.float32)
        return array.reshape(variable.shape)

    def scalar(self, name: str, default: float) -> float:
        """The value of a variable that is one number, which is how CTranslate2 stores settings."""
        if self.find(name) is None:
            return default
        if (array := self.array(name)).size != 1:
            raise FolderError(f"{self.where}: {quote(name)} has {array.size:,} values, but it is a setting with one.")
        return float(array.ravel()[0])

    def weights(self) -> ForeignWeights:
        """All variables that are not single numbers, dequantized when they are read."""
        variables = {name: self.find(name) for name in self.names()}
        shapes = {
            name: variable.shape
            for name, variable in variables.items()
            if variable and variable.shape and not name.endswith(SCALE)
        }
        return ForeignWeights(self.where, shapes, self._dequantized)

    def _dequantized(self, name: str) -> Tensor:
        name = self.aliases.get(name, name)
        array = self.array(name)
        if array.dtype.str.lstrip("|") not in QUANTIZED:
            return torch.from_numpy(array.astype(np.float32))
        if name + SCALE not in self.variables:
            raise FolderError(
                f"{self.where}: {quote(name)} is quantized, and its scale {quote(name + SCALE)} is missing."
            )
        scale = self.array(name + SCALE).astype(np.float32)  # one per row, or one for all
        if scale.ndim > 1 or scale.size not in (1, len(array)) or not (scale > 0).all():
            raise FolderError(
                f"{self.where}: {quote(name + SCALE)} must hold one positive number per row of {quote(name)}."
            )
        return torch.from_numpy(array.astype(np.float32) / scale.reshape(-1, *(1,) * (array.ndim - 1)))


def open_variables(path: Path) -> Variables:
    """Find all variables of the model.bin in a folder."""
    file = find(path, FILE)
    if file is None:
        raise FolderError(f"{path} has no {FILE}; copy the folder again.")
    with file.open("rb") as content:
        return _Reader(content, file).variables()


class _Reader:
    """Reads the fields of a model.bin in their order."""

    def __init__(self, file: BinaryIO, where: Path) -> None:
        self.file, self.where, self.length = file, where, where.stat().st_size

    def variables(self) -> Variables:
        version = self.number("I")
        if version not in VERSIONS:
            raise FolderError(
                f"{self.where} has version {version} of CTranslate2's format, but heedful reads {VERSIONS[0]} to "
                f"{VERSIONS[-1]}; convert the model again with a current CTranslate2."
            )
        specification, revision = self.name(), self.number("I")
        variables: dict[str, Variable] = {}
        for _ in range(self.count()):
            name = self.name()
            if name in variables:
                raise self.damaged(f"it holds {quote(name)} twice")
            variables[name] = self.variable(name)
        aliases = {self.name(): self.name() for _ in range(self.count())} if self.file.tell() < self.length else {}
        for alias, name in aliases.items():
            if name not in variables or alias in variables:
                raise self.damaged(f"{quote(alias)} is another name of {quote(name)}, which it cannot be")
        if self.file.tell() != self.length:
            raise self.damaged("it has bytes after its last variable")
        return Variables(self.where, specification, revision, variables, aliases)

    def variable(self, name: str) -> Variable:
        rank = self.number("B")
        if rank > MOST_RANK:
            raise self.damaged(f"{quote(name)} has {rank} dimensions")
        shape = tuple(self.number("I") for _ in range(rank))
        dtype, size = self.number("B"), self.number("I")
        if dtype not in TYPES and dtype != BFLOAT16:
            raise self.damaged(f"{quote(name)} has type {dtype}, which heedful does not know")
        width = 2 if dtype == BFLOAT16 else TYPES[dtype].itemsize
        start = self.file.tell()
        if math.prod(shape) * width != size or start + size > self.length:
            raise self.damaged(f"{quote(name)} has {size:,} bytes, which its shape or the file contradicts")
        self.file.seek(size, 1)
        return Variable(shape, dtype, start)

    def count(self) -> int:
        if (count := self.number("I")) > MOST_VARIABLES:
            raise self.damaged(f"it lists {count:,} variables")
        return count

    def name(self) -> str:
        """A string: its length with the closing NUL, and its bytes."""
        length = self.number("H")
        if not 1 <= length <= MOST_NAME:
            raise self.damaged(f"a name has {length:,} bytes")
        try:
            return self.bytes(length)[:-1].decode("utf-8")
        except UnicodeDecodeError:
            raise self.damaged("a name is not UTF-8") from None

    def number(self, code: str) -> int:
        width = struct.calcsize(f"<{code}")
        return int(struct.unpack(f"<{code}", self.bytes(width))[0])

    def bytes(self, count: int) -> bytes:
        content = self.file.read(count)
        if len(content) != count:
            raise self.damaged("it ends too early")
        return content

    def damaged(self, reason: str) -> FolderError:
        return FolderError(f"{self.where} is damaged or not a model of CTranslate2: {reason}; copy it again.")
