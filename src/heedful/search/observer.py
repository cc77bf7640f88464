"""Watching a search: whoever wants to know what it saw and chose, and changes nothing.

Legend as in `beam`: A sentences still live, R rows, t tokens so far, K candidates, W of them live.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from heedful.search.hypothesis import Hypothesis

if TYPE_CHECKING:
    from torch import Tensor

    from heedful.search.beam import Candidates


class Observer:
    """Told of every step, and by the caller of the end; deaf to all of it until a subclass listens."""

    def step(self, sentence: Tensor, prefix: Tensor, log_probs: Tensor) -> None:
        """(R,) indices in the caller's batch, (R, t) ids so far, (R, V) what the constraints leave of the next."""

    def choose(
        self, sentence: Tensor, prefix: Tensor, candidates: Candidates, ending: Tensor, live: Candidates
    ) -> None:
        """(A,), (R, t), the (A, K) best candidates of a beam, (A, K) which of them end, the (A, W) that go on."""

    def finish(
        self, indices: Sequence[int], sources: Sequence[Sequence[int]], hypotheses: Sequence[list[Hypothesis]]
    ) -> None:
        """The sentences of one search, counted among all that the caller has, their ids, and what became of them."""
