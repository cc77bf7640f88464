"""Subtitles (SubRip, WebVTT): the text of cues is translated, times and settings stay.

The lines of a cue are one sentence or more, so they are translated together and broken again into as many lines. Lines
that begin with a dash are of different speakers and are translated one by one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from heedful.formats.document import Document, DocumentOptions, TargetText
from heedful.formats.encoded_text import EncodedText, Splice, line_offsets
from heedful.formats.segment import InlineCode, Segment, TaggedText, nest_codes

TIMING = re.compile(r"\s*(?:\d+:)?\d+:\d+[.,]\d+\s+-->\s")
TAG = re.compile(r"<(?P<end>/)?(?P<name>\w*)[^<>]*>|\{\\[^{}]*\}")
DASH = re.compile(r"\s*[-–—]\s*\S")


class SubtitleDocument(Document):
    """A subtitle file."""

    def __init__(self, content: EncodedText, options: DocumentOptions) -> None:
        super().__init__(content, options)
        self.lines = [f"{line}\n" for line in content.text.split("\n")]
        self.lines[-1] = self.lines[-1][:-1]
        self.offsets = line_offsets(self.lines)
        self.spans = list(self._cues())
        self.segments = [
            Segment(_tagged(" ".join(line.strip() for line in self.lines[first:last])), None, first + 1)
            for first, last in self.spans
        ]

    def _cues(self) -> list[tuple[int, int]]:
        """The lines of every cue; of every speaker, where there are several."""
        spans: list[tuple[int, int]] = []
        number = 0
        while number < len(self.lines):
            number += 1
            if not TIMING.match(self.lines[number - 1]):
                continue
            first = number
            while number < len(self.lines) and self.lines[number].strip():
                number += 1
            if first == number:
                continue
            speakers = sum(bool(DASH.match(TAG.sub("", line))) for line in self.lines[first:number])
            spans += [(n, n + 1) for n in range(first, number)] if speakers > 1 else [(first, number)]
        return spans

    def splices(self, targets: Mapping[int, TargetText]) -> list[Splice]:
        splices = []
        for number, target in targets.items():
            first, last = self.spans[number]
            text = break_lines(target.tagged.markup(str), last - first)
            newline = "\r\n" if self.lines[first].endswith("\r\n") else "\n"
            end = self.lines[last - 1][len(self.lines[last - 1].rstrip("\r\n")) :]
            written = newline.join(text) + end
            splices.append(Splice(self.offsets[first], self.offsets[last], written))
        return splices


def _tagged(text: str) -> TaggedText:
    texts, codes, position, length = [], [], 0, 0
    for match in TAG.finditer(text):
        texts.append(text[position : match.start()])
        length += len(texts[-1])
        kind = "single" if not match["name"] else "close" if match["end"] else "open"
        codes.append(InlineCode(match[0], length, kind, match["name"] or ""))
        position = match.end()
    return nest_codes("".join([*texts, text[position:]]), codes)


def break_lines(text: str, count: int) -> Sequence[str]:
    """The text in this many lines (fewer, if it has too few words) of about equal length, broken outside of tags."""
    lines = []
    for left in range(count, 1, -1):
        spaces = [match.start() for match in re.finditer(r" (?![^<>]*>)", text)]
        if not spaces:
            break
        at = min(spaces, key=lambda place: abs(place - len(text) / left))
        lines.append(text[:at].rstrip())
        text = text[at:].lstrip()
    return [*lines, text]
