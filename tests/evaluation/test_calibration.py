"""Confidence: isotonic regression against its min-max formula, and numbers that mean what they say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.evaluation.calibration import Observations, calibration_error, fit_curve, isotonic
from heedful.evaluation.comparison import compare, largest_differences
from heedful.evaluation.metrics import choose_tokenizer, evaluate


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=9))
def test_isotonic_regression_is_the_min_max_formula(outcomes: list[int]) -> None:
    n = len(outcomes)
    expected = [
        max(min(np.mean(outcomes[first : last + 1]) for last in range(i, n)) for first in range(i + 1))
        for i in range(n)
    ]
    assert isotonic(outcomes) == pytest.approx(expected)


def test_a_curve_tells_how_often_scores_are_right() -> None:
    random = np.random.default_rng(1)
    scores = random.uniform(-4, 0, 4000)
    outcomes = (random.uniform(size=4000) < np.exp(scores)).astype(float)
    observed = Observations(scores, outcomes)
    curve, rest = fit_curve(observed.half(0)), observed.half(1)
    confidence = np.array([curve(score) for score in rest.scores])
    assert calibration_error(confidence, rest.outcomes) < 0.05
    assert abs(curve(-1.0) - np.exp(-1)) < 0.1 and curve(-9) <= curve(0)
    assert calibration_error(np.full(4, 0.5), np.array([1.0, 0, 1, 0])) == 0
    assert calibration_error(np.array([0.95, 0.15]), np.array([0.0, 0.0])) == pytest.approx(0.55)


def test_the_tokenizer_of_bleu_follows_the_script() -> None:
    assert choose_tokenizer(["Ein Hund liest."]) is None
    assert choose_tokenizer(["我爱你。", "他也是 Tom。"]) == "zh"
    assert choose_tokenizer(["犬が寝ています。"]) in ("ja-mecab", "char")
    assert choose_tokenizer(["สวัสดี"]) == "char"
    assert "tok:zh" in evaluate(["我爱你。"], ["我爱你。"]).signatures["BLEU"]


def test_two_systems_are_compared_as_sacrebleu_does() -> None:
    references = [f"the {color} dog reads book {n} now" for n in range(20) for color in ("red", "old")]
    worse = [text.replace("dog reads", "cat eats") if n % 2 else text for n, text in enumerate(references)]
    bleu, chrf = compare((worse, references), references, samples=100)
    assert bleu.name == "BLEU" and bleu.scores[1] == pytest.approx(100) and bleu.p_value < 0.05
    assert chrf.scores[0] < chrf.scores[1] and bleu.intervals[0] > 0
    differences = largest_differences(references, (worse, references), references, 3)
    assert [difference.number for difference in differences] == sorted(
        difference.number for difference in differences
    ) and len(differences) == 3
    assert all(difference.scores[0] < difference.scores[1] and difference.number % 2 == 0 for difference in differences)
