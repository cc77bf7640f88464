"""When each word of a transcript was spoken, read off the cross-attention. Imports no torch.

The transcript runs through the model once with teacher forcing. The attention of the upper half of the decoder moves
through the sound as the text does; dynamic time warping finds that path, as Whisper's word timestamps do. A path covers
pauses too, so each word is then reduced to the sound in which its tokens have most attention.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heedful.audio.log_mel import FRAMES_PER_SECOND, FeatureFrames, Frames
from heedful.inference.transcript_formats import SpokenWord, join_texts
from heedful.text.words import NO_WORD, Span, word_spans, words_of_spans

MEDIAN_WIDTH = 7  # positions of the filter that smooths the attention of a token over time
PAUSE_SECONDS = 0.2  # shorter quiet stretches, such as that before a "t", do not interrupt a word
QUIET, LOUD = 5, 99  # percentiles of the loudness of a window; log-mel values of 1 are 40 dB apart
LOUDNESS = 0.3  # a frame is sound if it is louder than this share of the way from quiet to loud,
SOUND_RANGE = 0.5  # and at most this far below loud: beside digital silence the noise of a room is not sound
CONTRAST = 0.25  # a window whose quiet and loud are closer together is all sound
LEAST_ATTENTION = 0.5  # if the path leaves the last word less than this share of its attention,
LAST_ATTENTION = 0.8  # the word lasts until this share is over
SENTENCE_PAUSE = 0.6  # seconds between two words that end a segment
LONGEST_SEGMENT = 7.0  # seconds
SEGMENT_CHARACTERS = 84  # two lines of a subtitle

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class TokenWord:
    """A word, with the white space before it, and the places of its tokens."""

    text: str
    tokens: tuple[int, ...]

    def shifted(self, count: int) -> TokenWord:
        """The word with so many tokens before it."""
        return TokenWord(self.text, tuple(token + count for token in self.tokens))

    def followed_by(self, other: TokenWord) -> TokenWord:
        """Both as one word."""
        return TokenWord(self.text + other.text, self.tokens + other.tokens)


def token_words(text: str, spans: Sequence[Span]) -> list[TokenWord]:
    """The words of a text whose tokens have these spans of characters.

    An opening bracket or quotation mark that stands alone belongs to the word after it, other punctuation to the word
    before. Words that share a token are one.
    """
    ends = [end for _, end in word_spans(text)]
    words: list[TokenWord] = []
    opening = TokenWord("", ())
    done = 0  # characters
    for place, number in enumerate(words_of_spans(text, spans)):
        if number == NO_WORD:
            continue
        piece, done = text[done : ends[number]], max(done, ends[number])
        continues = not piece  # the same word or character as the token before
        if opening.tokens if continues else all(map(_opens, piece.strip())):
            opening = opening.followed_by(TokenWord(piece, (place,)))
        elif words and not opening.tokens and not any(map(str.isalnum, piece)):
            words[-1] = words[-1].followed_by(TokenWord(piece, (place,)))
        else:
            words.append(opening.followed_by(TokenWord(piece, (place,))))
            opening = TokenWord("", ())
    return [*words, opening] if opening.tokens else words


def _opens(character: str) -> bool:
    """Whether it is an opening bracket, quotation mark or the like."""
    return unicodedata.category(character) in ("Ps", "Pi") or character in "¿¡"


def upper_heads(heads: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The heads of the upper half of the decoder layers, as (layer, head)."""
    middle = (max(layer for layer, _ in heads) + 1) // 2
    return [(layer, head) for layer, head in heads if layer >= middle]


class SoundPath:
    """The path of the tokens of a transcript through the sound of a window.

    `weights` (H, T, S) is the attention of its `tokens`, and of its end unless it was cut off, to the positions of the
    window, which may be longer than its `seconds` of sound.
    """

    def __init__(self, weights: Floats, tokens: int, features: FeatureFrames, seconds: float) -> None:
        self.tokens, self.stride, self.seconds = tokens, len(features.frames) // features.positions, seconds
        positions = min(features.positions, max(1, round(seconds * FRAMES_PER_SECOND / self.stride)))
        self.attention = np.zeros((weights.shape[1], positions), np.float32)  # the mean of the heads
        costs = np.zeros(self.attention.shape)
        for head in weights[..., :positions]:  # one by one: copies of all heads of a large model would take gigabytes
            normalized = head / np.maximum(head.sum(-1, keepdims=True), 1e-9)
            self.attention += normalized / len(weights)
            costs += path_costs(normalized)
        self.bounds = [*_divide_shared(time_warping(costs)), float(positions)]
        self.sound = has_sound(features.frames, self.stride, positions)

    def times(self, tokens: Sequence[int]) -> tuple[float, float]:
        """Start and end, in seconds, of the sound of tokens that follow each other."""
        first, last = tokens[0], tokens[-1]
        attention = self.attention[first : last + 1].sum(0)
        start, end = self.bounds[first], self.bounds[last + 1]
        if last + 1 == self.tokens:
            end = _end_of_last(attention, start, end)
        start, end = _most_attended(start, end, attention, self.sound)
        return self._seconds(start), self._seconds(end)

    def _seconds(self, position: float) -> float:
        return min(position * self.stride / FRAMES_PER_SECOND, self.seconds)


def path_costs(weights: Floats) -> Floats:
    """(T, S) attention of a head -> (T, S): low where a label attends more than the others.

    The weights of a position are standardized over the labels, and those of a label smoothed over time.
    """
    deviation = np.maximum(weights.std(0), 1e-9)
    return -_median_filter((weights - weights.mean(0)) / deviation)


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


def _end_of_last(attention: Floats, start: float, end: float) -> float:
    """The end of the last word, whose path leads from `start` to `end`.

    The end of a transcript has no sound of its own: small models attend to the last word there, so that its path
    would end too early, and in a window of one word at its beginning.
    """
    first = int(start)
    sums = attention[first:].cumsum()
    if sums[math.ceil(end) - first - 1] >= LEAST_ATTENTION * sums[-1]:
        return end
    return max(end, min(float(len(attention)), first + 1.0 + int(np.searchsorted(sums, LAST_ATTENTION * sums[-1]))))


def _most_attended(start: float, end: float, attention: Floats, sound: NDArray[np.bool_]) -> tuple[float, float]:
    """The stretch of sound between two positions that has most attention; all of it if there is no sound."""
    first = int(start)
    stretches = [(first + a, first + b) for a, b in _stretches(sound[first : math.ceil(end)])]
    chosen = max(stretches, key=lambda bounds: float(attention[slice(*bounds)].sum()), default=(start, end))
    return max(start, chosen[0]), min(end, chosen[1])


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
            text = join_texts(spoken.text for spoken in words[first : place + 1])
            pause, seconds = word.start - words[end - 1].end, word.end - words[first].start
            if pause < SENTENCE_PAUSE and seconds <= LONGEST_SEGMENT and len(text) <= SEGMENT_CHARACTERS:
                bounds[-1] = first, place + 1
                continue
        bounds.append((place, place + 1))
    return bounds


def _median_filter(values: Floats) -> Floats:
    """Along the last axis; the values are mirrored at both ends."""
    reach = MEDIAN_WIDTH // 2
    if values.shape[-1] <= reach:
        return values
    padded = np.pad(values, ((0, 0), (reach, reach)), mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, MEDIAN_WIDTH, -1)
    smooth: Floats = np.partition(windows, reach, -1)[..., reach]
    return smooth
