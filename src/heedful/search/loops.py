"""Repetition loops: an output that repeats an n-gram in a row although its source does not.

Small models fall into such loops and leave them only at the length limit. A beam search is run to its end first; only
if its best hypothesis has a loop is the sentence searched again, with a constraint against loops. So every other output
is the same with the guard and without it. Sampling applies the constraint at once, as its rows are independent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

    from heedful.search.options import Constraint

MAX_COPIES = 3  # of an n-gram in a row; an output with more has a loop, unless its source has as many
GUARDED_COPIES = 2  # that the second search of a sentence allows, unless its source has more
SAMPLED_RUN = 32  # tokens of a run that sampling lets pass: `- - - -` is no loop yet


def max_copies(ids: Sequence[int]) -> int:
    """The most copies in a row of any n-gram: 3 for `a b c b c b c d`, 0 for an empty sequence."""
    row, copies = np.asarray(ids), min(1, len(ids))
    for period in range(1, len(row) // 2 + 1):
        same = np.concatenate([[False], row[period:] == row[:-period], [False]])
        ends = np.flatnonzero(same[1:] != same[:-1])  # runs of equality begin and end here, in turn
        longest = int((ends[1::2] - ends[::2]).max(initial=0))
        copies = max(copies, (longest + period) // period)
    return copies


def has_loop(ids: Sequence[int], source: Sequence[int]) -> bool:
    """Whether an output has a loop that its source does not have."""
    copies = max_copies(ids)
    return copies > MAX_COPIES and copies > max_copies(source)


def loop_tokens(ids: Sequence[int], copies: int, min_run: int = 0) -> set[int]:
    """The tokens that would continue `copies` copies of an n-gram at the end, if these are `min_run` tokens or more."""
    tokens = set()
    for period in range(1, len(ids) // copies + 1):
        if ids[-1] != ids[-1 - period]:
            continue
        run = period
        while run < len(ids) and ids[-1 - run + period] == ids[-1 - run]:
            run += 1
        if run >= max(copies * period, min_run):
            tokens.add(ids[-period])
    return tokens


def forbid_loops(copies: Callable[[int], int], min_run: int = 0) -> Constraint:
    """Forbid more than copies(b) copies of an n-gram in a row in the outputs of sentence b."""

    def apply(log_probs: Tensor, prefix: Tensor, sentence: Tensor) -> Tensor:
        if prefix.size(1) < max(2, min_run):
            return log_probs
        for row, (ids, b) in enumerate(zip(prefix.tolist(), sentence.tolist(), strict=True)):
            if tokens := loop_tokens(ids, copies(b), min_run):
                log_probs[row, list(tokens)] = -float("inf")
        return log_probs

    return apply


def guard_samples(sources: Sequence[Sequence[int]]) -> Constraint:
    """Forbid loops of SAMPLED_RUN tokens or more that the source of a sample, or its prompt, does not have."""

    @cache
    def copies(sentence: int) -> int:
        return max(MAX_COPIES, max_copies(sources[sentence]))

    return forbid_loops(copies, SAMPLED_RUN)
