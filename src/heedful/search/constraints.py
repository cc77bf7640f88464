"""Wishes about the output, as functions on log-probabilities that beam search and sampling apply alike.

Each function here builds a `Constraint`: (R, V) log-probabilities, (R, t) the ids so far without bos, (R,) the
sentence that each row belongs to, counted in the caller's batch -> (R, V) log-probabilities. It may write into what it
is given. Nothing but `only` normalises again: what is forbidden gets minus infinity, what is allowed keeps its number.
None may rise above 0, or a beam would stop before its best hypothesis.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from heedful.errors import SettingError
from heedful.search.options import Constraint


def compose(*constraints: Constraint) -> Constraint:
    """All of them, one after the other."""

    def apply(log_probs: Tensor, prefix: Tensor, sentence: Tensor) -> Tensor:
        for constraint in constraints:
            log_probs = constraint(log_probs, prefix, sentence)
        return log_probs

    return apply


def ban(ids: Iterable[int]) -> Constraint:
    """These tokens never come."""
    banned = torch.tensor(sorted(set(ids)), dtype=torch.long)

    def apply(log_probs: Tensor, prefix: Tensor, sentence: Tensor) -> Tensor:
        return log_probs.index_fill_(1, banned.to(log_probs.device), -torch.inf)

    return apply


def restrict_to_shortlists(shortlists: Sequence[npt.NDArray[np.int32] | None]) -> Constraint:
    """Sentence b is made of shortlists[b], if it has one: the probabilities of these tokens sum up to 1 again."""

    def apply(log_probs: Tensor, prefix: Tensor, sentence: Tensor) -> Tensor:
        for b in set(sentence.tolist()):
            if (ids := shortlists[b]) is not None:
                rows, some = (sentence == b).nonzero(), torch.from_numpy(ids).long().to(log_probs.device)
                kept = log_probs[rows, some].log_softmax(1)
                log_probs[rows.squeeze(1)] = -torch.inf
                log_probs[rows, some] = kept
        return log_probs

    return apply


def force_prefix(prefixes: Sequence[Sequence[int]], then: Constraint) -> Constraint:
    """Sentence b begins with prefixes[b], at the model's own log-probabilities; `then` holds only after it."""
    forced = _padded(prefixes)  # (B, longest), -1 where a sentence is free

    def apply(log_probs: Tensor, prefix: Tensor, sentence: Tensor) -> Tensor:
        length = prefix.size(1)
        if length >= forced.size(1):
            return then(log_probs, prefix, sentence)
        token = forced.to(log_probs.device)[sentence, length]  # (R,)
        rows = (token >= 0).nonzero().squeeze(1)
        real = log_probs[rows, token[rows]]
        log_probs = then(log_probs, prefix, sentence)
        log_probs[rows] = -torch.inf
        log_probs[rows, token[rows]] = real
        return log_probs

    return apply


def penalize_repetition(penalty: float) -> Constraint:
    """Make every token that has come before less probable: log p * penalty (Keskar et al., 2019)."""
    if penalty <= 0:
        raise SettingError(f"the repetition penalty is {penalty}; it must be above 0, and 1 changes nothing.")

    def apply(log_probs: Tensor, prefix: Tensor, sentence: Tensor) -> Tensor:
        return log_probs.scatter_(1, prefix, log_probs.gather(1, prefix) * penalty)

    return apply


def no_repeat(n: int) -> Constraint:
    """No n tokens come twice in the same order (Paulus et al., 2018)."""
    if n < 1:
        raise SettingError(f"no_repeat is {n}; give the length of the n-grams that must not come twice, 1 or more.")

    def apply(log_probs: Tensor, prefix: Tensor, sentence: Tensor) -> Tensor:
        length = prefix.size(1)
        if length < n:
            return log_probs
        grams = prefix.unfold(1, n, 1)  # (R, t - n + 1, n)
        begun = (grams[..., :-1] == prefix[:, None, length - n + 1 :]).all(2)  # grams that the last n - 1 ids begin
        row, place = begun.nonzero(as_tuple=True)
        log_probs[row, grams[row, place, -1]] = -torch.inf
        return log_probs

    return apply


def min_length(length: int, eos_id: int) -> Constraint:
    """At least so many tokens come before eos."""

    def apply(log_probs: Tensor, prefix: Tensor, sentence: Tensor) -> Tensor:
        if prefix.size(1) < length:
            log_probs[:, eos_id] = -torch.inf
        return log_probs

    return apply


def _padded(prefixes: Sequence[Sequence[int]]) -> Tensor:
    longest = max((len(ids) for ids in prefixes), default=0)
    return torch.tensor([[*ids, *[-1] * (longest - len(ids))] for ids in prefixes], dtype=torch.long).view(
        len(prefixes), longest
    )
