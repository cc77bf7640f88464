"""Calibration of confidence on sentences with references: isotonic regression, and a reliability diagram.

A word counts as right if it is in the reference (as often as there); a sentence has the share of its words that are.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.errors import DataError
from heedful.inference.confidence import CONFIDENCE_FILE, CalibrationCurve, sentence_score, word_scores
from heedful.inference.results import Translation
from heedful.storage.atomic import atomic_write
from heedful.text.words import words

RELIABILITY = "confidence.png"
MIN_WORDS = 200  # that a calibration needs
MAX_POINTS = 40  # of a curve
BINS = 10
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Observations:
    """Scores of a model and what became of them: 1 for right, 0 for wrong, or a share."""

    scores: Floats
    outcomes: Floats

    def half(self, which: int) -> Observations:
        return Observations(self.scores[which::2], self.outcomes[which::2])


@dataclass(frozen=True)
class CalibrationResult:
    """Curves of words and sentences, and how well those of one half of the data fit the other half."""

    words: CalibrationCurve
    sentences: CalibrationCurve
    errors: dict[str, float]  # expected calibration error, in percent
    held_out: dict[str, tuple[Floats, Floats]]  # confidence and outcome in the other half


def isotonic(outcomes: Sequence[float]) -> list[float]:
    """The non-decreasing sequence closest to `outcomes` in squares (pool adjacent violators)."""
    blocks: list[tuple[float, int]] = []  # mean, length
    for outcome in outcomes:
        mean, length = float(outcome), 1
        while blocks and blocks[-1][0] >= mean:
            before, count = blocks.pop()
            mean, length = (mean * length + before * count) / (length + count), length + count
        blocks.append((mean, length))
    return [mean for mean, length in blocks for _ in range(length)]


def fit_curve(observed: Observations) -> CalibrationCurve:
    """Isotonic regression of the outcomes on the scores, at up to MAX_POINTS quantiles of the scores."""
    order = np.argsort(observed.scores, kind="stable")
    scores: Floats = observed.scores[order]
    fitted: Floats = np.array(isotonic(observed.outcomes[order].tolist()), dtype=np.float64)
    chunks = np.array_split(np.arange(len(scores)), min(MAX_POINTS, len(scores)))
    inputs = [round(float(scores[chunk].mean()), 6) for chunk in chunks]
    outputs = [round(float(np.clip(fitted[chunk].mean(), 0, 1)), 6) for chunk in chunks]
    return CalibrationCurve(tuple(inputs), tuple(outputs))


def observe(translations: Sequence[Translation], references: Sequence[str]) -> tuple[Observations, Observations]:
    """The observations of all words, and of all sentences."""
    of_words: list[tuple[float, float]] = []
    of_sentences: list[tuple[float, float]] = []
    for translation, reference in zip(translations, references, strict=True):
        left, right = Counter(words(reference)), 0
        written = words(translation.tokenizer.decode(translation.ids))
        scores = word_scores(translation.tokenizer, translation.ids, translation.token_log_probs)
        for word, score in zip(written, scores, strict=True):
            hit = left[word] > 0
            left[word] -= hit
            right += hit
            of_words.append((score, float(hit)))
        if written:
            of_sentences.append((sentence_score(translation.token_log_probs), right / len(written)))
    if len(of_words) < MIN_WORDS:
        raise DataError(f"{len(of_words)} words are too few to calibrate confidence; give sentences with {MIN_WORDS}.")
    return _observations(of_words), _observations(of_sentences)


def _observations(pairs: Sequence[tuple[float, float]]) -> Observations:
    values = np.array(pairs)
    return Observations(values[:, 0], values[:, 1])


def calibrate(translations: Sequence[Translation], references: Sequence[str]) -> CalibrationResult:
    """Fit both curves; the errors are those of curves fitted on every other observation, on the rest."""
    both = dict(zip(("words", "sentences"), observe(translations, references), strict=True))
    errors, held_out = {}, {}
    for name, observed in both.items():
        curve, rest = fit_curve(observed.half(0)), observed.half(1)
        confidence = np.array([curve(score) for score in rest.scores])
        held_out[name] = confidence, rest.outcomes
        errors[name] = 100 * calibration_error(confidence, rest.outcomes)
    return CalibrationResult(fit_curve(both["words"]), fit_curve(both["sentences"]), errors, held_out)


def calibration_error(confidence: Floats, outcomes: Floats) -> float:
    """Expected calibration error: the mean distance between confidence and outcome over bins of confidence."""
    numbers = np.minimum((confidence * BINS).astype(int), BINS - 1)
    distances = [abs(float((confidence - outcomes)[numbers == bin].sum())) for bin in range(BINS)]
    return sum(distances) / len(confidence)


def save_calibration(folder: Path, result: CalibrationResult) -> None:
    """Write confidence.json, and the reliability diagram as confidence.png."""
    content: dict[str, Any] = {name: asdict(getattr(result, name)) for name in ("words", "sentences")}
    content["expected_calibration_error"] = result.errors
    atomic_write(folder / CONFIDENCE_FILE, json.dumps(content, indent=1))
    draw_reliability(folder / RELIABILITY, result)


def draw_reliability(path: Path, result: CalibrationResult) -> None:
    """Confidence against the share that is right, on the half of the data that the curves were not fitted on."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    for axes, (name, (confidence, outcomes)) in zip(figure.subplots(1, 2), result.held_out.items(), strict=True):
        numbers = np.minimum((confidence * BINS).astype(int), BINS - 1)
        full = [bin for bin in range(BINS) if (numbers == bin).any()]
        axes.plot([0, 1], [0, 1], color="#999999", linestyle="--")
        axes.plot(
            [confidence[numbers == bin].mean() for bin in full],
            [outcomes[numbers == bin].mean() for bin in full],
            color="#0072B2",
            marker="o",
        )
        axes.set_xlabel("confidence")
        axes.set_ylabel("share of words in the reference")
        axes.set_title(f"{name}: calibration error {result.errors[name]:.1f} %")
    figure.savefig(path, dpi=120)
