"""Logits of tokens -> the tags of words, and the span of an answer. Knows neither models nor torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heedful.data.token_labels import PassageWindows, TokenWindow, central_window

Logits = NDArray[np.float32]
MAX_ANSWER = 30  # tokens


@dataclass(frozen=True)
class TaggedWord:
    """A word, its most probable tag, and the probability of that tag."""

    word: str
    tag: str
    probability: float


@dataclass(frozen=True)
class Answer:
    """A span of a passage, in characters; empty if the question has no answer there.

    `score` is the logit of the span less that of no answer.
    """

    text: str
    start: int
    end: int
    score: float


def softmax(logits: Logits) -> NDArray[np.float64]:
    """(..., C) -> (..., C)."""
    exponents = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True))
    probabilities: NDArray[np.float64] = exponents / exponents.sum(-1, keepdims=True)
    return probabilities


def tag_words(
    words: Sequence[str],
    first_tokens: Sequence[int | None],
    parts: list[TokenWindow],
    logits: Sequence[Logits],
    labels: Sequence[str],
) -> list[TaggedWord]:
    """The tag of each word, from its first token in the window that shows the most context of it.

    A word without tokens gets the tag O, or the first label if there is no O.
    """
    outside = labels.index("O") if "O" in labels else 0
    tagged = []
    for word, token in zip(words, first_tokens, strict=True):
        best, probability = outside, 0.0
        if token is not None:
            window = central_window(token, parts)
            row = softmax(logits[window][token - parts[window].start])
            best = int(row.argmax())
            probability = float(row[best])
        tagged.append(TaggedWord(word, labels[best], probability))
    return tagged


def best_answer(context: str, passage: PassageWindows, logits: Sequence[Logits], allow_empty: bool = True) -> Answer:
    """The span with the highest sum of start and end logits over all windows, if it is above that of no answer.

    No answer is the first token, [CLS], in every window; the lowest of these sums counts, as a window that does not
    contain the answer knows nothing of the others.
    """
    none = min(float(rows[0].sum()) for rows in logits)
    best = Answer("", 0, 0, -np.inf)
    for part, rows in zip(passage.parts, logits, strict=True):
        start, end, total = _best_span(rows[passage.offset : passage.offset + len(part.ids)])
        if total - none > best.score:
            begin, stop = passage.spans[part.start + start][0], passage.spans[part.start + end][1]
            text = context[begin:stop]
            begin += len(text) - len(text.lstrip())
            best = Answer(text.strip(), begin, begin + len(text.strip()), total - none)
    return best if best.score > 0 or not allow_empty else Answer("", 0, 0, best.score)


def _best_span(logits: Logits) -> tuple[int, int, float]:
    """(T, 2) -> first and last token, and the sum of their logits; a span has at most MAX_ANSWER tokens."""
    if not len(logits):
        return 0, 0, -np.inf
    sums = logits[:, 0, None] + logits[None, :, 1]  # (start, end)
    distance = np.arange(len(logits))[None, :] - np.arange(len(logits))[:, None]
    sums = np.where((distance >= 0) & (distance < MAX_ANSWER), sums, -np.inf)
    start, end = np.unravel_index(int(sums.argmax()), sums.shape)
    return int(start), int(end), float(sums[start, end])
