"""Ids -> padded tensors: the last step from a corpus to the model.

A source ends in its end-of-sequence token; a target has its start and end tokens, so the decoder's input and the labels
are the same row shifted by one. Batch first, padded right. Knows no text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.data.labeled_corpus import frame_text_pair
from heedful.data.pairs import Pairs, RaggedIds
from heedful.text import Specials


class MicroBatch:
    """A batch, or part of one, as a dataclass of tensors, whose first axis is the example, and of numbers."""

    def to(self, device: torch.device | str) -> Self:
        return self.with_each(lambda tensor: tensor.to(device))

    def with_each(self, change: Callable[[Tensor], Tensor], **changes: Any) -> Self:
        """The same with every tensor changed, and with `changes` of other attributes."""
        tensors = {name: change(value) for name, value in vars(self).items() if isinstance(value, Tensor)}
        return replace(self, **tensors, **changes)  # type: ignore[type-var]


@dataclass(frozen=True)
class Batch(MicroBatch):
    """Padded right: source (B, S) with its end, target (B, T + 1) with its start and its end."""

    source: Tensor
    target: Tensor
    source_lengths: Tensor  # (B,) real tokens of the source, its end included
    target_lengths: Tensor  # (B,) real labels, the end included
    tokens: int  # real labels in all

    @property
    def decoder_input(self) -> Tensor:
        """(B, T): the start and all tokens before the end."""
        return self.target[:, :-1]

    @property
    def labels(self) -> Tensor:
        """(B, T): all tokens and the end."""
        return self.target[:, 1:]

    def __len__(self) -> int:
        return self.source.size(0)

    def rows(self, numbers: Tensor) -> Batch:
        """The given rows, in this order."""
        return self.with_each(lambda rows: rows[numbers], tokens=int(self.target_lengths[numbers].sum()))

    def doubled(self) -> Batch:
        """(2B, …): all rows twice, for R-Drop."""
        return self.rows(torch.arange(len(self)).repeat(2))


def collate(
    pairs: Pairs, indices: Sequence[int] | NDArray[np.integer], source: Specials, target: Specials | None = None
) -> Batch:
    """Collate the pairs at `indices`; without `target` both sides have the same special tokens."""
    target = target or source
    rows = np.asarray(indices, np.int64)
    sources, source_lengths = pad_ids(pairs.sources, rows, source, start=False)
    targets, target_lengths = pad_ids(pairs.targets, rows, target, start=True)
    return Batch(
        source=torch.from_numpy(sources),
        target=torch.from_numpy(targets),
        source_lengths=torch.from_numpy(source_lengths),
        target_lengths=torch.from_numpy(target_lengths),
        tokens=int(target_lengths.sum()),
    )


def pad_ids(
    sequences: RaggedIds, rows: NDArray[np.int64], ids: Specials, start: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(B, longest + 1 or 2) with the end token and, if `start`, the start token; (B,) lengths with the end token."""
    lengths = sequences.offsets[rows + 1] - sequences.offsets[rows]
    longest = int(lengths.max(initial=0))
    first = int(start)
    padded = np.full((len(rows), longest + 1 + first), ids.pad, np.int64)
    if start:
        padded[:, 0] = ids.bos
    real = np.arange(longest) < lengths[:, None]  # (B, longest)
    padded[:, first : first + longest][real] = sequences.flat(rows)
    padded[np.arange(len(rows)), lengths + first] = ids.eos
    return padded, lengths + 1


@dataclass(frozen=True)
class LabeledBatch(MicroBatch):
    """(B, T) ids and token types, padded right; labels: (B,) numbers, (B, T) of each token, or (B, 2) positions."""

    ids: Tensor
    types: Tensor
    labels: Tensor


@dataclass(frozen=True)
class TextPairBatch(MicroBatch):
    """(B, T) ids and token types of the first and of the second text of each pair, padded right."""

    first: Tensor
    first_types: Tensor
    second: Tensor
    second_types: Tensor


def collate_text_pairs(
    rows: Sequence[tuple[Sequence[int], Sequence[int]]], specials: Specials, types: int
) -> tuple[Tensor, Tensor]:
    """-> (B, T) ids `<s> … </s>` or `<s> … </s> … </s>`, padded right, and (B, T) the token type of each."""
    framed = [frame_text_pair(first, second, specials, types) for first, second in rows]
    longest = max((len(ids) for ids, _ in framed), default=0)
    ids = torch.full((len(rows), longest), specials.pad)
    segments = torch.zeros_like(ids)
    for row, (tokens, kinds) in enumerate(framed):
        ids[row, : len(tokens)] = torch.tensor(tokens)
        segments[row, : len(tokens)] = torch.tensor(kinds)
    return ids, segments
