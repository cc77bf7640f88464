"""The interface between search and models: the distribution of the next token.

A translator, a GPT, an ensemble or a toy in a test is a `NextToken`. Search keeps R = B * W rows, W for each sentence,
side by side. Weights, text and the layout of a cache are unknown here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class SearchCache(Protocol):
    """The state of a model between two steps, such as a KV cache. It belongs to the search that started it."""

    def select(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """(R',), (B',): new row r continues old row rows[r]; the sentences in `sources` stay, or all if None.

        `sources` are old indices in ascending order. The rows of one sentence stay side by side and every sentence has
        equally many, so that the memory of a source is never copied for each of its beams.
        """


class NextToken(Protocol):
    """A distribution over the next token, given a source and the tokens so far."""

    @property
    def bos_id(self) -> int: ...

    @property
    def eos_id(self) -> int: ...

    @property
    def pad_id(self) -> int: ...

    @property
    def vocab_size(self) -> int: ...

    def start(self, source: Tensor, source_lengths: Tensor) -> SearchCache:
        """(B, S), (B,) -> a cache with one row for each sentence."""

    def step(self, ids: Tensor, cache: SearchCache) -> Tensor:
        """(R,) the last token of every row -> (R, V) log-probabilities of the next, in float32.

        The tensor is a fresh one: the caller may write into it.
        """
