"""What a search returns: token ids with the numbers that speak for them."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Hypothesis:
    """One output of the model, without bos and eos.

    `log_prob` is the sum of `token_log_probs`, which hold one number for each id and one more for eos if the output
    came to its end (`finished`); `score` is that sum divided by the length penalty.
    """

    ids: tuple[int, ...]
    score: float
    log_prob: float
    token_log_probs: tuple[float, ...]
    finished: bool


def length_penalty(length: int, alpha: float) -> float:
    """((5 + n) / 6) ** alpha for n output tokens, eos included (Wu et al., 2016, equation 14)."""
    return float(((5 + length) / 6) ** alpha)


def hypotheses(ids: Tensor, token_log_probs: Tensor, alpha: float, finished: bool) -> list[Hypothesis]:
    """(N, t) ids, the last one eos if finished, and (N, t) log-probabilities -> N hypotheses."""
    length = ids.size(1)
    log_probs = token_log_probs.double().sum(1)  # (N,)
    scores = log_probs / length_penalty(length, alpha)
    words = ids[:, : length - finished].tolist()
    rows = zip(words, scores.tolist(), log_probs.tolist(), token_log_probs.tolist(), strict=True)
    return [Hypothesis(tuple(w), score, total, tuple(each), finished) for w, score, total, each in rows]
