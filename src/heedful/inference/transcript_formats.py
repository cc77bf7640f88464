"""Transcripts in the formats of subtitles: SubRip (.srt), WebVTT (.vtt) and JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from heedful.text.words import SPACELESS

if TYPE_CHECKING:
    from heedful.inference.transcriber import Transcript

NO_SPACE = re.compile(f"[{SPACELESS}]{{2}}")
SHORTEST_CUE = 0.001  # seconds; players drop a subtitle that ends when it begins


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
class SpeechSegment:
    """Text between two times, in seconds; `log_prob` is the sum over the tokens of its window.

    It has `words` if their times were asked for.
    """

    start: float
    end: float
    text: str
    log_prob: float = 0.0
    words: tuple[SpokenWord, ...] = ()
    ids: tuple[int, ...] = field(default=(), repr=False)

    def later(self, seconds: float) -> SpeechSegment:
        """The segment with so many seconds before it."""
        words = tuple(word.later(seconds) for word in self.words)
        start, end = round(self.start + seconds, 3), round(self.end + seconds, 3)
        return replace(self, start=start, end=end, words=words)


def join_texts(texts: Iterable[str]) -> str:
    """Texts with a space between them, but in scripts without spaces."""
    joined = ""
    for text in filter(None, texts):
        joined += text if not joined or NO_SPACE.match(joined[-1] + text[0]) else f" {text}"
    return joined


def word_segments(segments: Iterable[SpeechSegment]) -> list[SpeechSegment]:
    """A segment for every word."""
    return [
        SpeechSegment(word.start, word.end, word.text, segment.log_prob)
        for segment in segments
        for word in segment.words
    ]


def clock(seconds: float, comma: str = ".") -> str:
    """3661.5 -> '01:01:01.500'."""
    thousandths = round(seconds * 1000)
    minutes, rest = divmod(thousandths, 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest // 1000:02}{comma}{rest % 1000:03}"


def subrip(segments: Sequence[SpeechSegment]) -> str:
    """Numbered subtitles with a blank line after each."""
    blocks = [f"{number}\n{_cue(segment, ',')}\n{segment.text}\n" for number, segment in enumerate(segments, 1)]
    return "\n".join(blocks)


def webvtt(segments: Sequence[SpeechSegment]) -> str:
    """The subtitles of web pages; arrows in a text are escaped."""
    blocks = [f"{_cue(segment)}\n{segment.text.replace('&', '&amp;').replace('<', '&lt;')}\n" for segment in segments]
    return "\n".join(["WEBVTT\n", *blocks])


def _cue(segment: SpeechSegment, comma: str = ".") -> str:
    """The times of a subtitle."""
    return f"{clock(segment.start, comma)} --> {clock(max(segment.end, segment.start + SHORTEST_CUE), comma)}"


def as_object(transcript: Transcript) -> dict[str, Any]:
    """Text, seconds and segments for JSON."""
    segments = [_segment_object(segment) for segment in transcript.segments]
    return {"text": transcript.text, "seconds": round(transcript.duration, 3), "segments": segments}


def _segment_object(segment: SpeechSegment) -> dict[str, Any]:
    values: dict[str, Any] = {"start": segment.start, "end": segment.end, "text": segment.text}
    values["log_prob"] = round(segment.log_prob, 4)
    if segment.words:
        values["words"] = [
            {"word": word.text, "start": word.start, "end": word.end, "probability": round(word.probability, 4)}
            for word in segment.words
        ]
    return values
