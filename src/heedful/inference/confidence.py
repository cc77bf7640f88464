"""Confidence of a translation and of its words: calibrated probabilities, from the model's own.

`confidence.json` in a model folder holds two monotone functions, fitted on a validation set: from the mean
log-probability of a word's tokens to the probability that the word is in a reference, and from the mean log-probability
of a sentence's tokens to the share of its words that are. `evaluation/calibration.py` fits them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from heedful.errors import FolderError, SettingError
from heedful.files import read_json
from heedful.storage.folder import ModelFolder
from heedful.text import NO_WORD, Tokenizer, words_of_spans
from heedful.text.words import word_spans

CONFIDENCE_FILE = "confidence.json"


@dataclass(frozen=True)
class CalibrationCurve:
    """A non-decreasing piecewise linear function, constant outside of its points."""

    inputs: tuple[float, ...]
    outputs: tuple[float, ...]

    def __call__(self, value: float) -> float:
        return float(np.interp(value, self.inputs, self.outputs))

    @classmethod
    def of_json(cls, values: Any) -> CalibrationCurve:
        inputs, outputs = (tuple(map(float, values[name])) for name in ("inputs", "outputs"))
        ascending = all(np.diff(side).min(initial=0) >= 0 for side in (inputs, outputs))
        if not inputs or len(inputs) != len(outputs) or not ascending or not 0 <= min(outputs) <= max(outputs) <= 1:
            raise ValueError("not a calibration curve")
        return cls(inputs, outputs)


@dataclass(frozen=True)
class ConfidenceModel:
    """The calibration curves of words and of sentences."""

    words: CalibrationCurve
    sentences: CalibrationCurve


def load_confidence(folder: ModelFolder) -> ConfidenceModel:
    """The calibration in a model folder."""
    content = read_json(folder.path, CONFIDENCE_FILE) if folder.path.is_dir() else None
    if content is None:
        raise SettingError(
            f"{folder.path} has no calibration of confidence; make it with `heedful evaluate {folder.path}"
            " --source FILE --reference FILE --calibrate`."
        )
    try:
        return ConfidenceModel(*(CalibrationCurve.of_json(content[name]) for name in ("words", "sentences")))
    except (KeyError, TypeError, ValueError):
        raise FolderError(
            f"{folder.path / CONFIDENCE_FILE} is damaged; make it again with `heedful evaluate --calibrate`."
        ) from None


def word_scores(tokenizer: Tokenizer, ids: Sequence[int], log_probs: Sequence[float]) -> list[float]:
    """The mean log-probability of the tokens of every word; that of the word before, where a word has no token."""
    text, spans = tokenizer.decode_spans(ids)
    numbers = words_of_spans(text, spans)
    by_word: list[list[float]] = [[] for _ in word_spans(text)]
    for number, log_prob in zip(numbers, log_probs, strict=False):
        if number != NO_WORD:
            by_word[number].append(log_prob)
    scores, following = [], 0.0  # in scripts without spaces a token of several words belongs to the last of them
    for values in reversed(by_word):
        following = sum(values) / len(values) if values else following
        scores.append(following)
    return scores[::-1]


def sentence_score(log_probs: Sequence[float]) -> float:
    """The mean log-probability of all tokens, eos included."""
    return sum(log_probs) / len(log_probs) if log_probs else 0.0
