"""Scores of answers as SQuAD's own scorer counts them: exact match, and F1 over words.

Lower case, without punctuation and without the articles a, an and the. The best of several reference answers counts;
the answer to a question without one is the empty text.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

from heedful.errors import DataError

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


def answer_scores(predicted: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """Exact match and F1, in percent; a question without references has no answer."""
    if not references or len(predicted) != len(references):
        raise DataError(f"{len(predicted)} answers for {len(references)} questions; give one or more, one for each.")
    exact, f1 = 0.0, 0.0
    for answer, expected in zip(predicted, references, strict=True):
        possible = [text for text in expected if normalize_answer(text)] or [""]
        exact += max(float(normalize_answer(answer) == normalize_answer(text)) for text in possible)
        f1 += max(word_f1(answer, text) for text in possible)
    return {"valid_exact": 100 * exact / len(predicted), "valid_f1": 100 * f1 / len(predicted)}


def word_f1(answer: str, reference: str) -> float:
    """F1 of the words that both texts have, counted as often as they occur in both."""
    words, expected = normalize_answer(answer).split(), normalize_answer(reference).split()
    if not words or not expected:
        return float(words == expected)
    return 2 * (Counter(words) & Counter(expected)).total() / (len(words) + len(expected))


def normalize_answer(text: str) -> str:
    """The words that are compared."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())
