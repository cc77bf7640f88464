"""ROUGE-1, ROUGE-2 and ROUGE-L by the package rouge-score, with bootstrap confidence intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from rouge_score.rouge_scorer import RougeScorer  # type: ignore[import-untyped]

from heedful.errors import DataError

KINDS = ("rouge1", "rouge2", "rougeL")
NAMES = ("ROUGE-1", "ROUGE-2", "ROUGE-L")
SIGNATURE = "F1, rouge-score, Porter stemmer, tokens a-z0-9 in lower case"
RESAMPLES, CONFIDENCE, SEED = 1000, 0.95, 12345


@dataclass(frozen=True)
class Interval:
    """A mean with the bounds of its confidence interval, in percent."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:6.2f}   [{self.low:.2f}, {self.high:.2f}]"


@dataclass(frozen=True)
class RougeEvaluation:
    """ROUGE F1 of a test set."""

    rouge1: Interval
    rouge2: Interval
    rougeL: Interval  # noqa: N815
    documents: int
    signature: str

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def rouge_f1(hypotheses: Sequence[str], references: Sequence[str]) -> NDArray[np.float64]:
    """-> (documents, 3): ROUGE-1, -2 and -L of each document, in percent."""
    if len(hypotheses) != len(references):
        raise DataError(f"{len(hypotheses)} summaries and {len(references)} references; give one for each.")
    if not references:
        raise DataError("there is nothing to evaluate: no document was given.")
    scores = (_scorer().score(reference, text) for text, reference in zip(hypotheses, references, strict=True))
    return 100 * np.array([[score[kind].fmeasure for kind in KINDS] for score in scores])


def evaluate_summaries(hypotheses: Sequence[str], references: Sequence[str]) -> RougeEvaluation:
    """The mean of each kind over all documents, and its confidence interval by bootstrap resampling of documents."""
    scores = rouge_f1(hypotheses, references)
    rouge1, rouge2, rouge_l = (bootstrap(column) for column in scores.T)
    return RougeEvaluation(rouge1, rouge2, rouge_l, len(scores), SIGNATURE)


def bootstrap(scores: NDArray[np.float64]) -> Interval:
    """The mean of some numbers with its confidence interval: percentiles of the means of random resamples."""
    random = np.random.default_rng(SEED)
    means = [scores[random.integers(len(scores), size=len(scores))].mean() for _ in range(RESAMPLES)]
    low, high = np.percentile(means, [50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE)])
    return Interval(float(scores.mean()), float(low), float(high))


@cache
def _scorer() -> RougeScorer:
    return RougeScorer(list(KINDS), use_stemmer=True)
