"""F1 of entities and answers, and correlations, beside worked examples and other implementations."""

from __future__ import annotations

import random

import numpy as np
import pytest

from heedful.errors import DataError
from heedful.evaluation.answers import answer_scores, normalize_answer, word_f1
from heedful.evaluation.metrics import correlation_scores
from heedful.evaluation.tags import entities, tag_scores


@pytest.mark.parametrize(
    ("tags", "expected"),  # as seqeval.metrics.sequence_labeling.get_entities gives them
    [
        ("B-PER I-PER O B-LOC", [("PER", 0, 1), ("LOC", 3, 3)]),
        ("I-PER I-PER O I-LOC", [("PER", 0, 1), ("LOC", 3, 3)]),  # IOB1
        ("B-PER B-PER", [("PER", 0, 0), ("PER", 1, 1)]),
        ("B-PER I-LOC I-LOC", [("PER", 0, 0), ("LOC", 1, 2)]),
        ("S-PER B-LOC I-LOC E-LOC I-LOC", [("PER", 0, 0), ("LOC", 1, 3), ("LOC", 4, 4)]),
        ("E-PER E-PER O", [("PER", 0, 0), ("PER", 1, 1)]),
        ("O O", []),
        ("B-A-B I-A-B", [("A-B", 0, 1)]),
    ],
)
def test_entities_are_those_of_seqeval(tags: str, expected: list[tuple[str, int, int]]) -> None:
    assert entities(tags.split()) == expected


def test_f1_counts_whole_entities() -> None:
    expected = [["O", "O", "O", "B-MISC", "I-MISC", "I-MISC", "O"], ["B-PER", "I-PER", "O"]]
    predicted = [["O", "O", "B-MISC", "I-MISC", "I-MISC", "I-MISC", "O"], ["B-PER", "I-PER", "O"]]
    scores = tag_scores(predicted, expected)  # the example of seqeval's README: 0.50
    assert scores == {"valid_accuracy": pytest.approx(80), "valid_f1": pytest.approx(50)}
    words = tag_scores([["NOUN", "VERB"]], [["NOUN", "NOUN"]])
    assert words["valid_accuracy"] == 50
    assert words["valid_f1"] == pytest.approx(100 * (2 / 3 + 0) / 2), "parts of speech are compared word by word"
    with pytest.raises(DataError, match="differ in number"):
        tag_scores([["O"]], [["O", "O"]])


@pytest.mark.parametrize(
    ("answer", "reference", "f1"),
    [
        ("The Eiffel Tower.", "eiffel tower", 1),
        ("in the year 1889", "1889", 2 / 4),
        ("dog", "cat", 0),
        ("", "", 1),
        ("", "cat", 0),
        ("the", "", 1),
        ("a b b", "b b c", 2 * 2 / (2 + 3)),
    ],
)
def test_words_of_answers(answer: str, reference: str, f1: float) -> None:
    assert word_f1(answer, reference) == pytest.approx(f1)


def test_answers_are_scored_as_by_transformers() -> None:
    theirs = pytest.importorskip("transformers.data.metrics.squad_metrics")
    draw = random.Random(3)
    words = ["the", "a", "An", "dog", "Dog!", "cat", "U.S.", "it's", "--", "an apple", "1,000"]
    for _ in range(300):
        a, b = (" ".join(draw.choices(words, k=draw.randrange(5))) for _ in range(2))
        assert normalize_answer(a) == theirs.normalize_answer(a)
        assert word_f1(a, b) == pytest.approx(theirs.compute_f1(b, a))
    assert answer_scores(["x", ""], [["y", "x"], []]) == {"valid_exact": 100, "valid_f1": 100}
    assert answer_scores(["x", "z"], [["y z"], []]) == {"valid_exact": 0, "valid_f1": 0}


def test_correlations_are_those_of_numpy_and_of_a_loop() -> None:
    random_numbers = np.random.default_rng(1)
    first, second = random_numbers.integers(0, 6, 40).astype(float), random_numbers.normal(size=40).round(1)
    second += first

    def rank(values: np.ndarray) -> np.ndarray:
        return np.array([np.mean([1 + sum(values < v), sum(values <= v)]) for v in values])

    scores = correlation_scores(first.tolist(), second.tolist())
    assert scores["valid_pearson"] == pytest.approx(100 * np.corrcoef(first, second)[0, 1])
    assert scores["valid_spearman"] == pytest.approx(100 * np.corrcoef(rank(first), rank(second))[0, 1])
    assert correlation_scores([1, 1], [1, 2]) == {"valid_pearson": 0, "valid_spearman": 0}
    with pytest.raises(DataError, match="two or more"):
        correlation_scores([1], [1])
