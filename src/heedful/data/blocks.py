"""A stream of tokens -> blocks of equal length -> batches of language-model training, without padding.

The offset of the first block is drawn anew in every epoch, so blocks begin elsewhere each time. The batch plan is a
pure function of the length, the seed and the epoch, as it is for pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from heedful.data.batch import MicroBatch
from heedful.data.pairs import Ids

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class TokenBlocks(MicroBatch):
    """(B, T + 1) tokens of a text: each but the last is an input, each but the first a label."""

    ids: Tensor

    @property
    def tokens(self) -> int:
        return self.ids.size(0) * (self.ids.size(1) - 1)


def plan_blocks(tokens: int, block: int, batch_tokens: int, seed: int, epoch: int) -> list[Indices]:
    """The starts of the blocks of every global batch; a block has `block` tokens and the label of the last one."""
    random = np.random.default_rng((seed, epoch))
    offsets = max(1, tokens - 1 - block)  # possible starts of the first block
    starts = np.arange(int(random.integers(min(block, offsets))), tokens - block, block, dtype=np.int64)
    starts = starts[random.permutation(len(starts))]
    return [starts[i : i + size] for size in [max(1, batch_tokens // block)] for i in range(0, len(starts), size)]


def read_blocks(stream: Ids, starts: Indices, length: int) -> NDArray[np.int64]:
    """-> (B, length): the tokens that follow each start."""
    return np.asarray(stream[starts[:, None] + np.arange(length)], np.int64)


def held_out_blocks(tokens: int, block: int, most: int, batch_tokens: int) -> list[tuple[Indices, int]]:
    """The batches of a validation, each with the length of its blocks; the last block may be shorter."""
    labels = min(tokens - 1, most)
    starts = np.arange(0, labels - block + 1, block, dtype=np.int64)
    size = max(1, batch_tokens // block)
    batches = [(starts[i : i + size], block) for i in range(0, len(starts), size)]
    rest = labels - len(starts) * block
    return batches + ([(np.array([len(starts) * block]), rest)] if rest else [])
