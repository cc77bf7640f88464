"""Constraints on the output: functions on log-probabilities that beam search and sampling apply.

Each function here builds a `Constraint`: (R, V) log-probabilities, (R, t) the ids so far without bos, (R,) the
sentence that each row belongs to, counted in the caller's batch -> (R, V) log-probabilities. It may modify its
arguments. Forbidden tokens get minus infinity and the others keep their log-probability; only `restrict_to_shortlists`
normalizes again. No result may be above 0, or a beam would stop before its best hypothesis.
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
    """Apply all constraints, in order."""

    def apply(log_probs: Tensor, prefix: Tensor, sentence: Tensor) -> Tensor:
        for constraint in constraints:
            log_probs = constraint(log_probs, prefix, sentence)
        return log_probs

    return apply


def ban(ids: Iterable[int]) -> Constraint:
    """Forbid these tokens."""
    banned = torch.tensor(sorted(set(ids)), dtype=torch.long)

    def apply(log_probs: Tensor, prefix: Tensor, sentence: Tensor) -> Tensor:
        return log_probs.index_fill_(1, banned.to(log_probs.device), -torch.inf)

    return apply


def restrict_to_shortlists(shortlists: Sequence[npt.NDArray[np.int32] | None]) -> Constraint:
    """Allow sentence b only the tokens of shortlists[b], if it has one, and normalize their probabilities."""

    def apply(log_probs: Tensor, prefix: Tensor, sentence: Tensor) -> Tensor:
        for b in set(sentence.tolist()):
            if (ids := shortlists[b]) is not None:
                rows, allowed = (sentence == b).nonzero(), torch.from_numpy(ids).long().to(log_probs.device)
                normalized = log_probs[rows, allowed].log_softmax(1)
                log_probs[rows.squeeze(1)] = -torch.inf
                log_probs[rows, allowed] = normalized
        return log_probs

    return apply


def force_prefix(prefixes: Sequence[Sequence[int]], then: Constraint) -> Constraint:
    """Force sentence b to begin with prefixes[b], at the model's own log-probabilities; `then` applies after it."""
    forced = _pad_prefixes(prefixes)  # (B, longest), -1 after the prefix

    def apply(log_probs: Tensor, prefix: Tensor, sentence: Tensor) -> Tensor:
        length = prefix.size(1)
        if length >= forced.size(1):
            return then(log_probs, prefix, sentence)
        token = forced.to(log_probs.device)[sentence, length]  # (R,)
        rows = (token >= 0).nonzero().squeeze(1)
        forced_log_probs = log_probs[rows, token[rows]]
        log_probs = then(log_probs, prefix, sentence)
        log_probs[rows] = -torch.inf
        log_probs[rows, token[rows]] = forced_log_probs
        return log_probs

    return apply


def no_repeat(n: int) -> Constraint:
    """Forbid every n-gram that has occurred (Paulus et al., 2018)."""
    if n < 1:
        raise SettingError(f"no_repeat is {n}; give the length of the n-grams that must not repeat, 1 or more.")

    def apply(log_probs: Tensor, prefix: Tensor, sentence: Tensor) -> Tensor:
        length = prefix.size(1)
        if length < n:
            return log_probs
        grams = prefix.unfold(1, n, 1)  # (R, t - n + 1, n)
        begun = (grams[..., :-1] == prefix[:, None, length - n + 1 :]).all(
            2
        )  # n-grams that begin with the last n - 1 ids
        row, place = begun.nonzero(as_tuple=True)
        log_probs[row, grams[row, place, -1]] = -torch.inf
        return log_probs

    return apply


def min_length(length: int, eos_id: int) -> Constraint:
    """Forbid eos before `length` tokens."""

    def apply(log_probs: Tensor, prefix: Tensor, sentence: Tensor) -> Tensor:
        if prefix.size(1) < length:
            log_probs[:, eos_id] = -torch.inf
        return log_probs

    return apply


def _pad_prefixes(prefixes: Sequence[Sequence[int]]) -> Tensor:
    longest = max((len(ids) for ids in prefixes), default=0)
    return torch.tensor([[*ids, *[-1] * (longest - len(ids))] for ids in prefixes], dtype=torch.long).view(
        len(prefixes), longest
    )
