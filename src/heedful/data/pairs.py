"""Encoded pairs, in memory or mapped from disk.

Written by a corpus builder, measured by `bucketing`, collated into batches. Knows ids and lengths, and no text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.unsignedinteger]
SIDES = ("source", "target")


@dataclass(frozen=True)
class RaggedIds:
    """Concatenated sequences of different lengths: sequence i is `ids[offsets[i]:offsets[i + 1]]`."""

    ids: Ids
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> Ids:
        if not -len(self) <= i < len(self):
            raise IndexError(f"sequence {i} of {len(self)}")
        i %= len(self)
        return self.ids[self.offsets[i] : self.offsets[i + 1]]

    @cached_property
    def lengths(self) -> NDArray[np.int32]:
        return np.subtract(self.offsets[1:], self.offsets[:-1], dtype=np.int32, casting="unsafe")

    def flat(self, rows: NDArray[np.int64]) -> Ids:
        """The given sequences, concatenated."""
        lengths = self.offsets[rows + 1] - self.offsets[rows]
        inside = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        flat: Ids = self.ids[np.repeat(self.offsets[rows], lengths) + inside]
        return flat

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> RaggedIds:
        lengths = [len(row) for row in rows]
        flat = np.fromiter((i for row in rows for i in row), np.uint32, sum(lengths))
        return cls(flat, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64))


@dataclass(frozen=True)
class Pairs:
    """Source and target ids of every pair, without special tokens; lengths count the same tokens."""

    sources: RaggedIds
    targets: RaggedIds

    def __len__(self) -> int:
        return len(self.sources)

    @classmethod
    def of(cls, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Pairs:
        """Pairs in memory, from lists of ids."""
        return cls(RaggedIds.of([source for source, _ in pairs]), RaggedIds.of([target for _, target in pairs]))


def id_type(vocab_size: int) -> type[np.unsignedinteger]:
    """The smallest dtype that holds every id."""
    return np.uint16 if vocab_size <= 2**16 else np.uint32


class RaggedWriter:
    """Appends sequences to one file, and their offsets to another when it is closed."""

    def __init__(self, values: Path, offsets: Path, kind: type[np.generic]) -> None:
        self._file, self._offsets, self._kind = values.open("wb"), offsets, kind
        self._lengths = [np.zeros(0, np.int64)]

    def append(self, rows: Sequence[Sequence[int]]) -> None:
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        self.append_flat(np.fromiter((i for row in rows for i in row), self._kind, int(lengths.sum())), lengths)

    def append_flat(self, values: NDArray[Any], lengths: NDArray[np.int64]) -> None:
        """Append concatenated sequences."""
        self._file.write(values.astype(self._kind, copy=False).tobytes())
        self._lengths.append(lengths)

    def close(self) -> NDArray[np.int64]:
        """Finish the files and return the lengths."""
        self._file.close()
        lengths = np.concatenate(self._lengths)
        self._offsets.write_bytes(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64).tobytes())
        return lengths

    @classmethod
    def of(cls, folder: Path, name: str, kind: type[np.generic]) -> RaggedWriter:
        """The writer of `name.ids` and `name.offsets`."""
        return cls(folder / f"{name}.ids", folder / f"{name}.offsets", kind)


class PairsWriter:
    """Appends pairs to the files `name.source.ids`, `name.source.offsets` and so on of a folder."""

    def __init__(self, folder: Path, name: str, types: tuple[type[np.unsignedinteger], type[np.unsignedinteger]]):
        self._sides = [RaggedWriter.of(folder, f"{name}.{side}", kind) for side, kind in zip(SIDES, types, strict=True)]

    def append(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> None:
        for side, rows in zip(self._sides, (sources, targets), strict=True):
            side.append(rows)

    def close(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Finish the files and return the lengths of both sides."""
        source, target = (side.close() for side in self._sides)
        return source, target


def open_pairs(folder: Path, name: str, types: tuple[type[np.unsignedinteger], type[np.unsignedinteger]]) -> Pairs:
    """Memory-map the files of a `PairsWriter`."""
    return Pairs(*(open_ragged(folder, f"{name}.{side}", kind) for side, kind in zip(SIDES, types, strict=True)))


def open_ragged(folder: Path, name: str, kind: type[np.unsignedinteger]) -> RaggedIds:
    """Memory-map `name.ids` and `name.offsets`."""
    return RaggedIds(map_array(folder / f"{name}.ids", kind), map_array(folder / f"{name}.offsets", np.int64))


def map_array(path: Path, kind: type[np.generic]) -> NDArray[Any]:
    """Memory-map a file of numbers."""
    if path.stat().st_size == 0:  # an empty file cannot be mapped
        return np.zeros(0, kind)
    return np.memmap(path, dtype=kind, mode="r")
