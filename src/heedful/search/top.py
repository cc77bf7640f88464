"""The k largest numbers of every row, exactly, without sorting the vocabulary.

Ties go to the lowest index, so that a search depends neither on the batch nor on the way a machine sorts. Most of
the time of a search outside its model is spent here, so a vocabulary is read once, in blocks, and never sorted.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK = 64  # numbers whose maximum is taken at once; a few vector registers of every CPU
WORTH_BLOCKS = 2**15  # numbers from which on the blocks repay the few calls they need


def top(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """(R, N) -> (R, k) values and (R, k) indices, largest first, ties by lowest index; all N if k is more.

    The k largest numbers lie in the k blocks with the largest maxima, and in the rest that fills no block. That holds
    for ties too, if blocks with equal maxima are taken by lowest index and keep their order.
    """
    blocks = x.size(1) // BLOCK
    if x.numel() < WORTH_BLOCKS or blocks < 4 * k:
        return _top(x, k)
    whole = x[:, : blocks * BLOCK].reshape(len(x), blocks, BLOCK)
    chosen = _top(whole.amax(2), k)[1].sort(dim=1).values  # (R, k)
    row = torch.arange(len(x), device=x.device).unsqueeze(1)
    few = torch.cat((whole[row, chosen].flatten(1), x[:, blocks * BLOCK :]), 1)  # (R, k * 64 + rest)
    values, place = _top(few, k)
    starts = F.pad(chosen, (0, 1), value=blocks)  # (R, k + 1): the rest follows the last block
    return values, starts.gather(1, place // BLOCK) * BLOCK + place % BLOCK


def _top(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """(R, N) -> (R, k) values and (R, k) indices, largest first, ties by lowest index; all N if k is more."""
    if k >= x.size(1):
        values, indices = x.sort(dim=1, descending=True, stable=True)
        return values, indices
    values, indices = x.topk(k + 1)  # one more tells whether the last place is contested
    tied = values[:, 1:] == values[:, :-1]
    if tied.any():
        tied &= values[:, 1:] > -torch.inf  # among what is impossible any order will do
        rows = tied.any(1).nonzero().squeeze(1)
        values[rows, :k], indices[rows, :k] = _top_of_tied(x[rows], values[rows, k - 1 : k], k)
    values, indices = values[:, :k], indices[:, :k]
    return values, indices


def _top_of_tied(x: Tensor, last: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """(N, V) rows and (N, 1) their k-th largest number -> (N, k) values and indices, ties by lowest index."""
    above, equal = x > last, x == last
    room = k - above.sum(1, keepdim=True)
    taken = above | (equal & (equal.cumsum(1) <= room))  # exactly k of every row
    indices = taken.nonzero()[:, 1].view(-1, k)  # in ascending order, which the stable sort keeps among ties
    values, order = x.gather(1, indices).sort(dim=1, descending=True, stable=True)
    return values, indices.gather(1, order)
