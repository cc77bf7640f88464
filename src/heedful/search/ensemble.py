"""An ensemble: several models as one `NextToken`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.errors import SettingError
from heedful.search.next_token import NextToken, SearchCache


class EnsembleCache(NamedTuple):
    """One cache for each model, reordered together."""

    caches: tuple[SearchCache, ...]

    def select(self, rows: Tensor, sources: Tensor | None = None) -> None:
        for cache in self.caches:
            cache.select(rows, sources)


class Ensemble:
    """The mean of the probabilities of models that share a vocabulary."""

    def __init__(self, members: Sequence[NextToken]) -> None:
        if not members:
            raise SettingError("the ensemble has no models; give at least one.")
        self.members = tuple(members)
        first = self.members[0]
        self.bos_id, self.eos_id, self.pad_id = first.bos_id, first.eos_id, first.pad_id
        self.vocab_size = first.vocab_size
        for number, other in enumerate(self.members[1:], start=2):
            self._check(number, other)

    def start(self, source: Tensor, source_lengths: Tensor) -> EnsembleCache:
        """(B, S), (B,) -> the caches of all members."""
        return EnsembleCache(tuple(member.start(source, source_lengths) for member in self.members))

    def step(self, ids: Tensor, cache: SearchCache) -> Tensor:
        """(R,) -> (R, V) log of the mean probability; computed on logarithms, so nothing underflows."""
        assert isinstance(cache, EnsembleCache)
        total, *others = (member.step(ids, own) for member, own in zip(self.members, cache.caches, strict=True))
        for log_probs in others:
            total = torch.logaddexp(total, log_probs, out=total)
        return total.sub_(math.log(len(self.members))) if others else total

    def _check(self, number: int, other: NextToken) -> None:
        for name in ("vocab_size", "bos_id", "eos_id", "pad_id"):
            expected, actual = getattr(self, name), getattr(other, name)
            if actual != expected:
                raise SettingError(
                    f"model {number} of the ensemble has {name} {actual}, and model 1 has {expected};"
                    " an ensemble needs models trained with one vocabulary."
                )
