"""Lengths -> the batches of an epoch.

A pure function of the lengths, the token budget, the seed and the epoch: whoever computes it gets the same batches in
the same order, so a position in it is one integer. Knows neither ids nor torch nor how many ranks there are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Lengths = NDArray[np.integer]
Indices = NDArray[np.int64]


def plan(source_lengths: Lengths, target_lengths: Lengths, batch_tokens: int, seed: int, epoch: int) -> list[Indices]:
    """Global batches, every pair in exactly one, each side of at most `batch_tokens` with padding.

    Lengths are without special tokens; each side gets one (a source its end, a target its end or its start). A pair
    that is longer than the budget is a batch of its own.
    """
    random = np.random.default_rng((seed, epoch))
    source = np.asarray(source_lengths, np.int64) + 1
    target = np.asarray(target_lengths, np.int64) + 1
    order = _by_length(source, target, random)
    batches = _cut(order, source[order], target[order], batch_tokens, random)
    return [batches[i] for i in random.permutation(len(batches))]


def pieces(batch: Indices, count: int) -> list[Indices]:
    """Cut a global batch into `count` runs whose numbers of pairs differ by at most one; some may be empty.

    Neighbours in a batch have similar lengths, so runs of rows are balanced in tokens and need the least padding.
    """
    return list(np.array_split(batch, count))


def padding(batches: Sequence[Indices], lengths: Lengths) -> float:
    """The share of a side of all batches that is padding."""
    rows = np.asarray(lengths, np.int64) + 1
    padded = sum(len(batch) * int(rows[batch].max()) for batch in batches)
    return 1 - int(sum(int(rows[batch].sum()) for batch in batches)) / padded if padded else 0.0


def _by_length(source: Indices, target: Indices, random: np.random.Generator) -> Indices:
    """Sorted by target length and then by source length; pairs of the same lengths in random order.

    The source lengths rise and fall in turns, so that where the target length changes the source length does not jump.
    """
    shuffled = random.permutation(len(source))
    source, target = source[shuffled], target[shuffled]
    span = int(source.max(initial=0)) + 1
    key = target * span + np.where(target % 2, source, span - 1 - source)
    return shuffled[np.argsort(key, kind="stable")]


def _cut(order: Indices, source: Indices, target: Indices, budget: int, random: np.random.Generator) -> list[Indices]:
    batches: list[Indices] = []
    start = 0
    # The first batch is cut short at random, so that from epoch to epoch the borders fall between other pairs.
    limit = max(1, int(budget * random.uniform(0.1, 1.0)))
    while start < len(order):
        most = max(1, limit // int(target[start]))  # targets only get longer from here
        rows = np.arange(1, len(source[start : start + most]) + 1)
        longest = np.maximum.accumulate(np.maximum(source[start : start + most], target[start : start + most]))
        over = rows * longest > limit
        size = max(1, int(over.argmax())) if over.any() else len(rows)
        batches.append(order[start : start + size])
        start, limit = start + size, budget
    return batches
