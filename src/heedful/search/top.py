"""The k largest numbers, exactly, without sorting the vocabulary.

Ties go to the lowest index, so that a search depends neither on the batch nor on the sorting algorithm. Most of
the time of a search outside its model is spent here: every number is read once, in blocks, and few are ranked.
"""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 64  # numbers whose maximum is taken at once; a few vector registers of every CPU
WORTH_BLOCKS = 2**15  # numbers from which on blocks are faster


def top_k(x: Tensor, k: int, score: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """(R, N) -> (R, k) the largest of each row and their (R, k) indices, largest first; all N if k is more.

    With scores (A, w), one for each row: (A, k) the largest of score + x among the w rows of each of A sentences, and
    their (A, k) places in w * N.

    The k largest numbers lie in the k blocks with the largest maxima. That holds for ties too, if blocks with equal
    maxima are taken by lowest index and keep their order.
    """
    sentences, width = (x.size(0), 1) if score is None else score.shape
    blocks = -(-x.size(1) // BLOCK)
    if x.numel() < WORTH_BLOCKS or width * blocks < 4 * k:
        return _top(_sums(x, score), k)
    chosen = _top(_sums(_maxima(x), score), k)[1].sort(dim=1).values  # (A, k) among w * blocks
    row, block = chosen // blocks, chosen % blocks
    column = block.unsqueeze(2) * BLOCK + torch.arange(BLOCK, device=x.device)  # (A, k, 64)
    place = (row.unsqueeze(2) * x.size(1) + column.clamp(max=x.size(1) - 1)).flatten(1)  # (A, k * 64)
    few = x.reshape(sentences, -1).gather(1, place).view_as(column)
    if score is not None:
        few = few + score.gather(1, row).unsqueeze(2)
    few = few.masked_fill(column >= x.size(1), -torch.inf)  # the last block is not full
    values, order = _top(few.flatten(1), k)
    return values, place.gather(1, order)


def _sums(x: Tensor, score: Tensor | None) -> Tensor:
    """(R, n), (A, w) -> (A, w * n), in the precision of the scores; x itself without them."""
    return x if score is None else (score.reshape(-1, 1) + x).view(len(score), -1)


def _maxima(x: Tensor) -> Tensor:
    """(R, N) -> (R, N / 64) the maximum of each block, the last of which may be shorter."""
    whole = x.size(1) // BLOCK
    maxima = x[:, : whole * BLOCK].reshape(len(x), whole, BLOCK).amax(2)
    if whole * BLOCK == x.size(1):
        return maxima
    return torch.cat((maxima, x[:, whole * BLOCK :].amax(1, keepdim=True)), 1)


def _top(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """(R, N) -> (R, k) values and (R, k) indices, largest first, ties by lowest index; all N if k is more."""
    if k >= x.size(1):
        values, indices = x.sort(dim=1, descending=True, stable=True)
        return values, indices
    values, indices = x.topk(k + 1)  # one more shows whether there is a tie for the last place
    tied = values[:, 1:] == values[:, :-1]
    if tied.any():
        tied &= values[:, 1:] > -torch.inf  # the order of impossible tokens does not matter
        rows = tied.any(1).nonzero().squeeze(1)
        values[rows, :k], indices[rows, :k] = _top_of_tied(x[rows], values[rows, k - 1 : k], k)
    return values[:, :k], indices[:, :k]


def _top_of_tied(x: Tensor, last: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """(N, V) rows and (N, 1) their k-th largest number -> (N, k) values and indices, ties by lowest index."""
    above, equal = x > last, x == last
    ties = k - above.sum(1, keepdim=True)
    chosen = above | (equal & (equal.cumsum(1) <= ties))  # exactly k of every row
    indices = chosen.nonzero()[:, 1].view(-1, k)  # in ascending order, which the stable sort keeps among ties
    values, order = x.gather(1, indices).sort(dim=1, descending=True, stable=True)
    return values, indices.gather(1, order)
