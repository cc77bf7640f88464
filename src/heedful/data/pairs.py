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

    def source(self, i: int) -> Ids:
        return self.sources[i]

    def target(self, i: int) -> Ids:
        return self.targets[i]

    @property
    def source_lengths(self) -> NDArray[np.int32]:
        return self.sources.lengths

    @property
    def target_lengths(self) -> NDArray[np.int32]:
        return self.targets.lengths

    @classmethod
    def of(cls, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Pairs:
        """Pairs in memory, from lists of ids."""
        return cls(RaggedIds.of([source for source, _ in pairs]), RaggedIds.of([target for _, target in pairs]))


def id_type(vocab_size: int) -> type[np.unsignedinteger]:
    """The smallest dtype that holds every id."""
    return np.uint16 if vocab_size <= 2**16 else np.uint32


class PairsWriter:
    """Appends pairs to the files `name.source.ids`, `name.source.offsets` and so on of a folder."""

    def __init__(self, folder: Path, name: str, types: tuple[type[np.unsignedinteger], type[np.unsignedinteger]]):
        self._ids = [(folder / f"{name}.{side}.ids").open("wb") for side in SIDES]
        self._offsets = [folder / f"{name}.{side}.offsets" for side in SIDES]
        self._lengths: tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]] = ([], [])
        self._types = types

    def append(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> None:
        for side, rows in enumerate((sources, targets)):
            lengths = np.fromiter(map(len, rows), np.int64, len(rows))
            flat = np.fromiter((i for row in rows for i in row), self._types[side], int(lengths.sum()))
            self._ids[side].write(flat.tobytes())
            self._lengths[side].append(lengths)

    def close(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Finish the files and return the lengths of both sides."""
        both = []
        for side in range(2):
            self._ids[side].close()
            lengths = np.concatenate([np.zeros(0, np.int64), *self._lengths[side]])
            self._offsets[side].write_bytes(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64).tobytes())
            both.append(lengths)
        return both[0], both[1]


def open_pairs(folder: Path, name: str, types: tuple[type[np.unsignedinteger], type[np.unsignedinteger]]) -> Pairs:
    """Memory-map the files of a `PairsWriter`."""
    sides = []
    for side, kind in zip(SIDES, types, strict=True):
        offsets = map_array(folder / f"{name}.{side}.offsets", np.int64)
        sides.append(RaggedIds(map_array(folder / f"{name}.{side}.ids", kind), offsets))
    return Pairs(*sides)


def map_array(path: Path, kind: type[np.generic]) -> NDArray[Any]:
    """Memory-map a file of numbers."""
    if path.stat().st_size == 0:  # an empty file cannot be mapped
        return np.zeros(0, kind)
    return np.memmap(path, dtype=kind, mode="r")
