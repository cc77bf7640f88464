"""ROUGE-1, ROUGE-2 and ROUGE-L by the package rouge-score, with bootstrap confidence intervals.

The tokenizer of that package drops all letters but a to z: a perfect summary in Russian or Chinese would score 0. Where
most letters of the references are others, tokens are words instead, and the signature says so.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from string import ascii_lowercase

import numpy as np
from numpy.typing import NDArray
from rouge_score.rouge_scorer import RougeScorer  # type: ignore[import-untyped]

from heedful.errors import DataError
from heedful.text.words import words

KINDS = ("rouge1", "rouge2", "rougeL")
NAMES = ("ROUGE-1", "ROUGE-2", "ROUGE-L")
SIGNATURE = "F1, rouge-score, Porter stemmer, tokens a-z0-9 in lower case"
ANY_SCRIPT_SIGNATURE = "F1, rouge-score, no stemmer, words of any script in lower case"
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
    scorer = _scorer(_in_latin_letters(references))
    scores = (scorer.score(reference, text) for text, reference in zip(hypotheses, references, strict=True))
    return 100 * np.array([[score[kind].fmeasure for kind in KINDS] for score in scores])


def evaluate_summaries(hypotheses: Sequence[str], references: Sequence[str]) -> RougeEvaluation:
    """The mean of each kind over all documents, and its confidence interval by bootstrap resampling of documents."""
    scores = rouge_f1(hypotheses, references)
    rouge1, rouge2, rouge_l = (bootstrap(column) for column in scores.T)
    signature = SIGNATURE if _in_latin_letters(references) else ANY_SCRIPT_SIGNATURE
    return RougeEvaluation(rouge1, rouge2, rouge_l, len(scores), signature)


def bootstrap(scores: NDArray[np.float64]) -> Interval:
    """The mean of some numbers with its confidence interval: percentiles of the means of random resamples."""
    random = np.random.default_rng(SEED)
    means = [scores[random.integers(len(scores), size=len(scores))].mean() for _ in range(RESAMPLES)]
    low, high = np.percentile(means, [50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE)])
    return Interval(float(scores.mean()), float(low), float(high))


class WordTokenizer:
    """Words in lower case without punctuation; in scripts without spaces every character."""

    def tokenize(self, text: str) -> list[str]:
        return words("".join(" " if unicodedata.category(letter)[0] in "PS" else letter for letter in text.lower()))


def _in_latin_letters(references: Sequence[str]) -> bool:
    """Whether at least half of the letters are a to z, which the tokenizer of rouge-score keeps."""
    letters = [letter for text in references for letter in text.lower() if letter.isalpha()]
    return 2 * sum(letter in ascii_lowercase for letter in letters) >= len(letters)


@cache
def _scorer(latin: bool) -> RougeScorer:
    return RougeScorer(list(KINDS), use_stemmer=True, tokenizer=None if latin else WordTokenizer())
