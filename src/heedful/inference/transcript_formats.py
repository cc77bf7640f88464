"""Transcripts in the formats of subtitles: SubRip (.srt), WebVTT (.vtt) and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heedful.inference.transcriber import Transcript


@dataclass(frozen=True)
class SpeechSegment:
    """Text between two times, in seconds; `log_prob` is the sum over the tokens of its window."""

    start: float
    end: float
    text: str
    log_prob: float = 0.0


def clock(seconds: float, comma: str = ".") -> str:
    """3661.5 -> '01:01:01.500'."""
    thousandths = round(seconds * 1000)
    minutes, rest = divmod(thousandths, 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest // 1000:02}{comma}{rest % 1000:03}"


def subrip(segments: Sequence[SpeechSegment]) -> str:
    """Numbered subtitles with a blank line after each."""
    blocks = [
        f"{number}\n{clock(segment.start, ',')} --> {clock(segment.end, ',')}\n{segment.text}\n"
        for number, segment in enumerate(segments, 1)
    ]
    return "\n".join(blocks)


def webvtt(segments: Sequence[SpeechSegment]) -> str:
    """The subtitles of web pages; arrows in a text are escaped."""
    blocks = [
        f"{clock(segment.start)} --> {clock(segment.end)}\n{segment.text.replace('&', '&amp;').replace('<', '&lt;')}\n"
        for segment in segments
    ]
    return "\n".join(["WEBVTT\n", *blocks])


def as_object(transcript: Transcript) -> dict[str, Any]:
    """Text, seconds and segments for JSON."""
    segments = [
        {"start": segment.start, "end": segment.end, "text": segment.text, "log_prob": round(segment.log_prob, 4)}
        for segment in transcript.segments
    ]
    return {"text": transcript.text, "seconds": round(transcript.duration, 3), "segments": segments}
