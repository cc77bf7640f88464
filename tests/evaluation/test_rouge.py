"""ROUGE beside its definition in plain loops, and the bootstrap beside the normal approximation."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from heedful.errors import DataError
from heedful.evaluation.rouge import bootstrap, evaluate_summaries, rouge_f1

TEXTS = ["a cat sat on the mat", "the mat", "", "red blue red blue", "one two three four five"]
REFERENCES = ["the cat sat down", "the mat", "a word", "blue red blue", "five four three two one"]


def overlap(a: Counter, b: Counter) -> float:
    hits = sum((a & b).values())
    return 200 * hits / (a.total() + b.total()) if hits else 0.0


def longest_common(a: list[str], b: list[str]) -> int:
    table = np.zeros((len(a) + 1, len(b) + 1), int)
    for i, left in enumerate(a, 1):
        for j, right in enumerate(b, 1):
            table[i, j] = table[i - 1, j - 1] + 1 if left == right else max(table[i - 1, j], table[i, j - 1])
    return int(table[-1, -1])


@pytest.mark.parametrize(
    "letters", ["abcdefghijklmnopqrstuvwxyz", "абвгдежзийклмнопрстуфхцчшщ", "αβγδεζηθικλμνξοπρστυφχψωϊϋ"]
)
def test_scores_are_those_of_the_definition(letters: str):
    table = str.maketrans("abcdefghijklmnopqrstuvwxyz", letters)
    texts, references = ([text.translate(table) for text in each] for each in (TEXTS, REFERENCES))
    for text, reference, scores in zip(texts, references, rouge_f1(texts, references), strict=True):
        a, b = text.split(), reference.split()
        common = longest_common(a, b)
        expected = [overlap(Counter(a), Counter(b))]
        expected.append(overlap(Counter(itertools.pairwise(a)), Counter(itertools.pairwise(b))))
        expected.append(200 * common / (len(a) + len(b)) if common else 0.0)
        assert scores.tolist() == pytest.approx(expected)


def test_words_are_stemmed_and_case_and_punctuation_do_not_count():
    assert rouge_f1(["Running dogs!"], ["the dog runs"])[0, 0] == pytest.approx(80)


def test_scripts_without_spaces_and_the_signature():
    assert rouge_f1(["我爱北京。"], ["北京,我爱!"])[0].tolist() == pytest.approx([100, 200 / 3, 50])
    assert rouge_f1(["हिन्दी, भाषा"], ["हिन्दी भाषा"])[0].tolist() == pytest.approx([100, 100, 100])
    assert "Porter stemmer" in evaluate_summaries(["naïve"], ["naïve café"]).signature
    assert "no stemmer, words of any script" in evaluate_summaries(["Москва"], ["Москва"]).signature


def test_the_interval_is_that_of_the_mean():
    numbers = np.random.default_rng(1).normal(30, 10, size=400)
    interval = bootstrap(numbers)
    error = 1.96 * numbers.std() / 20
    assert interval.mean == pytest.approx(numbers.mean())
    assert (interval.low, interval.high) == pytest.approx((interval.mean - error, interval.mean + error), abs=0.2)
    result = evaluate_summaries(TEXTS, REFERENCES)
    assert result.documents == 5 and result.rouge1.low <= result.rouge1.mean <= result.rouge1.high


def test_missing_references_are_explained():
    with pytest.raises(DataError, match="1 summaries and 2 references"):
        evaluate_summaries(["a"], ["a", "b"])
    with pytest.raises(DataError, match="no document"):
        evaluate_summaries([], [])
