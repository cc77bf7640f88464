"""Lengths -> the batches of an epoch.

The batch plan is a pure function of the lengths, the token budget, the seed and the epoch: every rank computes the same
batches in the same order, so a position in it is one integer. Knows neither ids nor torch nor the number of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Lengths = NDArray[np.integer]
Indices = NDArray[np.int64]


def plan_batches(
    source_lengths: Lengths, target_lengths: Lengths, batch_tokens: int, seed: int, epoch: int
) -> list[Indices]:
    """Global batches, every pair in exactly one, each side of at most `batch_tokens` with padding.

    Lengths are without special tokens; each side gets one (a source its end, a target its end or its start). A pair
    that is longer than the budget is a batch of its own.
    """
    random = np.random.default_rng((seed, epoch))
    source, target = (np.asarray(lengths, np.int32) for lengths in (source_lengths, target_lengths))
    order, longer = _by_length(source, target, random)
    batches = _cut(order, longer + 1, batch_tokens, random)
    return [batches[i] for i in random.permutation(len(batches))]


def micro_batches(batch: Indices, count: int) -> list[Indices]:
    """Divide a global batch into `count` micro-batches whose numbers of pairs differ by at most one; some may be empty.

    Neighbors in a batch have similar lengths, so consecutive rows are balanced in tokens and need the least padding.
    """
    return list(np.array_split(batch, count))


def padding(batches: Sequence[Indices], lengths: Lengths) -> float:
    """The share of padding in one side of all batches."""
    rows = np.asarray(lengths, np.int64) + 1
    padded = sum(len(batch) * int(rows[batch].max()) for batch in batches)
    return 1 - int(sum(int(rows[batch].sum()) for batch in batches)) / padded if padded else 0.0


def _by_length(source: Lengths, target: Lengths, random: np.random.Generator) -> tuple[Indices, Lengths]:
    """Sort by the longer side, then by the difference of both sides; pairs of equal lengths are in random order.

    The difference rises and falls alternately, so that it does not jump where the longer side grows by one. Of the
    orders tried (target first, target in strips, longer side first) this one needs the least padding and the fewest
    batches. Also returns the longer sides in that order.
    """
    shuffled = random.permutation(len(source))
    longer = np.maximum(source, target)[shuffled]
    difference = (source - target)[shuffled]
    np.negative(difference, out=difference, where=longer % 2 == 1)
    rising = np.lexsort((difference, longer))
    return shuffled[rising], longer[rising]


def _cut(order: Indices, longer: Lengths, budget: int, random: np.random.Generator) -> list[Indices]:
    """Runs of `order`, each as long as the budget allows; `longer` is the longer side of each pair, rising."""
    batches: list[Indices] = []
    start = 0
    # The first batch has a random size, so that batch boundaries differ from epoch to epoch.
    limit = max(1, int(budget * random.uniform(0.1, 1.0)))
    while start < len(order):
        ahead = longer[start : start + max(1, limit // int(longer[start]))]
        size = max(1, int(np.searchsorted(np.arange(1, len(ahead) + 1) * ahead, limit, side="right")))
        batches.append(order[start : start + size])
        start, limit = start + size, budget
    return batches
