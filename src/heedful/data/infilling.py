"""Text infilling (BART; Lewis et al., 2020): spans of a text are replaced by one mask token each.

The corrupted text is the source and the text itself the target. Lengths of spans are drawn from a Poisson distribution;
a span of length 0 inserts a mask token. Knows ids and random numbers, and no torch.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SPAN = 3.0  # mean length of a span (BART)


def infill(ids: NDArray[np.int64], mask_id: int, share: float, random: np.random.Generator) -> list[int]:
    """Replace about `share` of the tokens by mask tokens, one for each span."""
    budget = round(share * len(ids))
    lengths: list[int] = []
    while sum(lengths) < budget:
        lengths.append(min(int(random.poisson(SPAN)), budget - sum(lengths)))
    starts = np.sort(random.integers(len(ids) + 1 - budget, size=len(lengths)))  # among the tokens that stay
    random.shuffle(lengths)
    corrupted: list[int] = []
    at = 0  # in `ids`
    stayed = 0
    for start, length in zip(starts.tolist(), lengths, strict=True):
        corrupted += ids[at : at + start - stayed].tolist()
        corrupted.append(mask_id)
        at += start - stayed + length
        stayed = start
    corrupted += ids[at:].tolist()
    return corrupted
