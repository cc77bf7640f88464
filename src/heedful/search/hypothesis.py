"""The result of a search: token ids with their scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from heedful.config import SearchSettings

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Hypothesis:
    """One output of the model, without bos and eos.

    `log_prob` is the sum of `token_log_probs`, one for each id and one more for eos if the output is
    `finished`; `score` is that sum divided by the length penalty.
    """

    ids: tuple[int, ...]
    score: float
    log_prob: float
    token_log_probs: tuple[float, ...]
    finished: bool


def length_penalty(length: int, settings: SearchSettings) -> float:
    """What the score of n output tokens, eos included, is divided by.

    ((5 + n) / 6) ** alpha (Wu et al., 2016, equation 14), or n ** alpha.
    """
    base = length if settings.length_penalty_form == "power" else (5 + length) / 6
    return float(base**settings.length_penalty)


def hypotheses(ids: Tensor, token_log_probs: Tensor, settings: SearchSettings, finished: bool) -> list[Hypothesis]:
    """(N, t) ids, the last one eos if finished, and (N, t) log-probabilities -> N hypotheses."""
    rows = zip(ids.tolist(), token_log_probs.tolist(), strict=True)
    return [hypothesis(row, log_probs, settings, finished) for row, log_probs in rows]


def hypothesis(
    ids: Sequence[int], token_log_probs: Sequence[float], settings: SearchSettings, finished: bool
) -> Hypothesis:
    """(t,) ids, the last one eos if finished, and their log-probabilities -> a hypothesis."""
    total = sum(token_log_probs)
    score = total / length_penalty(len(ids), settings)
    return Hypothesis(tuple(ids[: len(ids) - finished]), score, total, tuple(token_log_probs), finished)
