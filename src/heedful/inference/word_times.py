"""When each word of a transcript was spoken, read off the cross-attention. Imports no torch.

The transcript runs through the model once with teacher forcing. The attention of the upper half of the decoder moves
through the sound as the text does; dynamic time warping finds that path, as Whisper's word timestamps do. A path covers
pauses too, so each word is then reduced to the sound in which its tokens have most attention.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heedful.audio.log_mel import FRAMES_PER_SECOND, FeatureFrames, Frames
from heedful.text.words import NO_WORD, Span, word_spans, words_of_spans

MEDIAN_WIDTH = 7  # positions of the filter that smooths the attention of a token over time
PAUSE_SECONDS = 0.2  # shorter quiet stretches, such as that before a "t", do not interrupt a word
QUIET, LOUD = 5, 99  # percentiles of the loudness of a window; log-mel values of 1 are 40 dB apart
LOUDNESS = 0.3  # on the way from the quiet to the loud: from here on a frame is sound,
SOUND_RANGE = 0.5  # unless it is so far below the loud, as the noise of a room is beside digital silence
CONTRAST = 0.25  # if the quiet and the loud are closer together, all of a window is sound
SENTENCE_PAUSE = 0.6  # seconds between two words that end a segment,
LONGEST_SEGMENT = 7.0  # which is not longer than this, in seconds,
SEGMENT_CHARACTERS = 84  # and this, two lines of a subtitle

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class SpokenWord:
    """A word with its punctuation, its times in seconds, and the geometric mean of the probabilities of its tokens."""

    text: str
    start: float
    end: float
    probability: float

    def later(self, seconds: float) -> SpokenWord:
        """The word with so many seconds before it."""
        return SpokenWord(self.text, round(self.start + seconds, 3), round(self.end + seconds, 3), self.probability)


@dataclass(frozen=True)
class TokenWord:
    """A word, with the white space before it, and the places of its tokens."""

    text: str
    tokens: tuple[int, ...]

    def later(self, count: int) -> TokenWord:
        """The word with so many tokens before it."""
        return TokenWord(self.text, tuple(token + count for token in self.tokens))


def token_words(text: str, spans: Sequence[Span]) -> list[TokenWord]:
    """The words of a text whose tokens have these spans of characters.

    Punctuation that stands alone belongs to the word before it, and words that share a token are one.
    """
    ends = [end for _, end in word_spans(text)]
    words: list[TokenWord] = []
    done = 0  # characters
    for place, number in enumerate(words_of_spans(text, spans)):
        if number == NO_WORD:
            continue
        piece, done = text[done : ends[number]], max(done, ends[number])
        if words and not any(map(str.isalnum, piece)):
            words[-1] = TokenWord(words[-1].text + piece, (*words[-1].tokens, place))
        else:
            words.append(TokenWord(piece, (place,)))
    return words


def upper_heads(heads: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The heads of the upper half of the decoder layers, as (layer, head)."""
    middle = (max(layer for layer, _ in heads) + 1) // 2
    return [(layer, head) for layer, head in heads if layer >= middle]


def token_starts(weights: Floats) -> list[int]:
    """(H, T, S) attention of each label to each position of the sound -> the first position of each label.

    The weights of a position are standardized over the labels, and those of a label smoothed over time.
    """
    deviation = np.maximum(weights.std(1, keepdims=True), 1e-9)
    standardized = (weights - weights.mean(1, keepdims=True)) / deviation
    return time_warping(-_median_filter(standardized).mean(0, dtype=np.float64))


def time_warping(costs: NDArray[np.float64]) -> list[int]:
    """(T, S) -> the first position of each label on the cheapest path from the first cell to the last.

    A step leads to the next label, to the next position, or to both (Sakoe and Chiba, 1978).
    """
    labels, positions = costs.shape
    sums = np.cumsum(costs, 1)
    total = sums[0]  # of the cheapest path to each position of a label
    entries, diagonal = [np.zeros(positions, np.int64)], [np.zeros(positions, np.bool_)]
    for label in range(1, labels):
        before = np.concatenate(([np.inf], total[:-1]))
        entered = np.minimum(before, total)  # the cheapest path to the label before, at this position or the last
        rest = entered - (sums[label] - costs[label])
        cheapest = np.minimum.accumulate(rest)
        entries.append(np.maximum.accumulate(np.where(rest == cheapest, np.arange(positions), 0)))
        diagonal.append(before <= total)
        total = sums[label] + cheapest
    starts, position = [0] * labels, positions - 1
    for label in range(labels - 1, 0, -1):
        starts[label] = int(entries[label][position])
        position = starts[label] - int(diagonal[label][starts[label]])
    return starts


def time_words(
    words: Sequence[TokenWord], weights: Floats, features: FeatureFrames, seconds: float, log_probs: Sequence[float]
) -> list[SpokenWord]:
    """The words of a window of sound, with times from its start.

    `weights` (H, T, S) is the attention of each token, and of the end of the transcript, to the positions of the
    window, which may be longer than its `seconds` of sound.
    """
    if not words:
        return []
    stride = len(features.frames) // features.positions
    positions = min(features.positions, max(1, round(seconds * FRAMES_PER_SECOND / stride)))
    weights = weights[..., :positions] / np.maximum(weights[..., :positions].sum(-1, keepdims=True), 1e-9)
    sound = has_sound(features.frames, stride, positions)
    bounds, mean = [*_divide_shared(token_starts(weights)), float(positions)], weights.mean(0)
    timed = []
    for word in words:
        first, last = word.tokens[0], word.tokens[-1]
        span = _loudest_stretch(bounds[first], bounds[last + 1], mean[first : last + 1].sum(0), sound)
        start, end = (min(position * stride / FRAMES_PER_SECOND, seconds) for position in span)
        probability = float(np.exp(np.mean([log_probs[token] for token in word.tokens])))
        timed.append(SpokenWord(word.text.strip(), start, end, probability))
    return timed


def _divide_shared(starts: Sequence[int]) -> list[float]:
    """Rising positions: labels that start at the same one get equal parts of it."""
    places = [starts[:label].count(start) for label, start in enumerate(starts)]
    return [start + place / starts.count(start) for start, place in zip(starts, places, strict=True)]


def has_sound(frames: Frames, stride: int, positions: int) -> NDArray[np.bool_]:
    """(frames, F) log-mel -> (S,): which positions are louder than the background of a window, short gaps filled."""
    loudness = frames[: positions * stride].mean(1).reshape(positions, stride).mean(1)
    quiet, loud = np.percentile(loudness, (QUIET, LOUD))
    if loud - quiet < CONTRAST:
        return np.ones(positions, np.bool_)
    sound: NDArray[np.bool_] = loudness >= max(quiet + LOUDNESS * (loud - quiet), loud - SOUND_RANGE)
    for start, end in _stretches(~sound):
        if start > 0 and end < positions and (end - start) * stride < PAUSE_SECONDS * FRAMES_PER_SECOND:
            sound[start:end] = True
    return sound


def _loudest_stretch(start: float, end: float, attention: Floats, sound: NDArray[np.bool_]) -> tuple[float, float]:
    """The stretch of sound between two positions that has most attention; all of it if there is no sound."""
    first = int(start)
    stretches = [(first + a, first + b) for a, b in _stretches(sound[first : math.ceil(end)])]
    loudest = max(stretches, key=lambda bounds: float(attention[slice(*bounds)].sum()), default=(start, end))
    return max(start, loudest[0]), min(end, loudest[1])


def _stretches(values: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Start and end (exclusive) of every run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], values.astype(np.int8), [0]))))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def segment_bounds(words: Sequence[SpokenWord]) -> list[tuple[int, int]]:
    """The first word of each segment and the one after its last: a pause ends a segment, and so does its length."""
    bounds: list[tuple[int, int]] = []
    for place, word in enumerate(words):
        if bounds:
            first, end = bounds[-1]
            characters = sum(len(before.text) + 1 for before in words[first:end]) + len(word.text)
            pause, seconds = word.start - words[end - 1].end, word.end - words[first].start
            if pause < SENTENCE_PAUSE and seconds <= LONGEST_SEGMENT and characters <= SEGMENT_CHARACTERS:
                bounds[-1] = first, place + 1
                continue
        bounds.append((place, place + 1))
    return bounds


def _median_filter(values: Floats) -> Floats:
    """Along the last axis; the values are mirrored at both ends."""
    reach = MEDIAN_WIDTH // 2
    if values.shape[-1] <= reach:
        return values
    padded = np.pad(values, ((0, 0), (0, 0), (reach, reach)), mode="reflect")
    smooth: Floats = np.median(np.lib.stride_tricks.sliding_window_view(padded, MEDIAN_WIDTH, -1), -1)
    return smooth
