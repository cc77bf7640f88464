"""Observers follow a search step by step and do not change it.

A step whose prefixes are empty begins a search: the first one, or the second one of sentences with a loop.

Legend as in `beam`: A sentences still searched, R rows, t tokens so far, K candidates, W of them live.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import TYPE_CHECKING

from heedful.search.hypothesis import Hypothesis

if TYPE_CHECKING:
    from torch import Tensor

    from heedful.search.beam import Candidates


class Observer:
    """Called at every step of a search, and by its caller at the end; subclasses override what they need."""

    def step(self, sentence: Tensor, prefix: Tensor, log_probs: Tensor) -> None:
        """(R,) indices in the caller's batch, (R, t) ids so far, (R, V) constrained log-probabilities."""

    def choose(
        self, sentence: Tensor, prefix: Tensor, candidates: Candidates, ending: Tensor, live: Candidates
    ) -> None:
        """(A,), (R, t), the (A, K) best candidates of a beam, (A, K) which of them end, the (A, W) that continue."""

    def finish(self, indices: Sequence[int], sources: Sequence[Sized], hypotheses: Sequence[list[Hypothesis]]) -> None:
        """The sentences of one search: their numbers among all of the caller's, their sources, their hypotheses."""
