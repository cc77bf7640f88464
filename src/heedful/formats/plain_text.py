"""Plain text files to translate as a whole: every line by itself, its line end and indentation kept."""

from __future__ import annotations

from collections.abc import Mapping

from heedful.formats.document import Document, DocumentOptions, TargetText
from heedful.formats.encoded_text import EncodedText, Splice
from heedful.formats.segment import Segment, TaggedText


class PlainTextDocument(Document):
    """A text file."""

    def __init__(self, content: EncodedText, options: DocumentOptions) -> None:
        super().__init__(content, options)
        self.spans: list[tuple[int, int]] = []
        segments, offset = [], 0
        for number, line in enumerate(content.utf8.split(b"\n"), 1):
            text = line.removesuffix(b"\r")
            if text.strip():
                self.spans.append((offset, offset + len(text)))
                segments.append(Segment(TaggedText(text.decode("utf-8")), None, number))
            offset += len(line) + 1
        self.segments = segments

    def splices(self, targets: Mapping[int, TargetText]) -> list[Splice]:
        return [Splice(*self.spans[number], target.tagged.text) for number, target in targets.items()]
