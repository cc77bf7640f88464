"""The k largest numbers of every row, exactly, without sorting the vocabulary.

Ties go to the lowest index, so that a search depends neither on the batch nor on the way a machine sorts. Most of
the time of a search outside its model is spent here, so a vocabulary is read once, in blocks, and never sorted.
"""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 64  # numbers whose maximum is taken at once; a few vector registers of every CPU


def top(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """(R, N) -> (R, k) values and (R, k) indices, largest first, ties by lowest index."""
    if k >= x.size(1):
        values, indices = x.sort(dim=1, descending=True, stable=True)
        return values, indices
    values, indices = _largest(x, k + 1)  # one more tells whether the last place is contested
    tied = ((values[:, 1:] == values[:, :-1]) & (values[:, 1:] > -torch.inf)).any(1)
    values, indices = values[:, :k], indices[:, :k]
    if tied.any():
        rows = tied.nonzero().squeeze(1)
        values[rows], indices[rows] = _top_of_tied(x[rows], values[rows, -1:], k)
    return values, indices


def _largest(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """(R, N) -> (R, k) values and indices, largest first, ties in any order.

    The k largest numbers lie in the k blocks with the largest maxima, and in the rest that fills no block.
    """
    blocks = x.size(1) // BLOCK
    if blocks < 4 * k:
        return torch.topk(x, k)
    whole = x[:, : blocks * BLOCK].reshape(len(x), blocks, BLOCK)  # (R, N / 64, 64)
    chosen = whole.amax(2).topk(k, sorted=False).indices  # (R, k)
    row = torch.arange(x.size(0), device=x.device).unsqueeze(1)
    rest = x[:, blocks * BLOCK :]
    values, place = torch.cat((whole[row, chosen].flatten(1), rest), 1).topk(k)
    inside = place < k * BLOCK
    block = chosen.gather(1, (place // BLOCK).clamp(max=k - 1))
    indices = torch.where(inside, block * BLOCK + place % BLOCK, place - k * BLOCK + blocks * BLOCK)
    return values, indices


def _top_of_tied(x: Tensor, last: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """(N, V) rows and (N, 1) their k-th largest number -> (N, k) values and indices, ties by lowest index."""
    above, equal = x > last, x == last
    room = k - above.sum(1, keepdim=True)
    taken = above | (equal & (equal.cumsum(1) <= room))  # exactly k of every row
    indices = taken.nonzero()[:, 1].view(-1, k)  # in ascending order, which the stable sort keeps among ties
    values, order = x.gather(1, indices).sort(dim=1, descending=True, stable=True)
    return values, indices.gather(1, order)
