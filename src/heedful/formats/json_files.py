"""JSON: pairs of a JSON Lines file, and the strings of a JSON file to translate."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from heedful.errors import DataError, quote
from heedful.formats.document import Document, DocumentOptions, TargetText
from heedful.formats.encoded_text import EncodedText, Splice
from heedful.formats.language_tags import WantedLanguages
from heedful.formats.line_files import BadLine, decode_good_and_bad
from heedful.formats.segment import Segment, TaggedText
from heedful.formats.tables import pair_names

STRING = re.compile(r'"[^"\\\x00-\x1f]*(?:\\.[^"\\\x00-\x1f]*)*"')
KEY = re.compile(r"\s*:")
HAS_LETTERS = re.compile(r"[^\W\d_]")
NOT_TEXT = re.compile(r"\s*(?:https?://\S*|[\w.+-]+@[\w.-]+|#[0-9a-fA-F]{3,8}|[\w./-]*/[\w./-]*)\s*")
NOT_JSON, NO_PAIR, NO_TEXT = "not a JSON object", "no source and target", "a source or target that is not text"


def read_json_lines(file: BinaryIO, languages: WantedLanguages) -> Iterator[Segment]:
    """Pairs of a JSON Lines file: {"source": …, "target": …}, {"translation": {"en": …, "de": …}} or the like."""
    for number, line in enumerate(decode_good_and_bad(file), 1):
        if isinstance(line, BadLine):
            yield Segment(TaggedText(), None, number, line.reason, defect=True)
            continue
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            yield Segment(TaggedText(line), None, number, NOT_JSON, defect=True)
            continue
        yield object_segment(values, languages, number)


def object_segment(values: Mapping[str, Any], languages: WantedLanguages, line: int) -> Segment:
    """The pair of an object or of a row."""
    pair = values.get("translation")
    pair = pair if isinstance(pair, Mapping) else values
    names = pair_names(list(pair), languages, summaries=True)
    if names is None:
        field_names = ", ".join(map(str, pair))[:80]
        return Segment(TaggedText(field_names), None, line, NO_PAIR, defect=True)
    source, target = (pair[name] for name in names)
    if not isinstance(source, str) or not isinstance(target, str):
        both = ", ".join(f"{name}: {quote(pair[name])}" for name in names)
        return Segment(TaggedText(both), None, line, NO_TEXT, defect=True)
    return Segment(TaggedText(source), TaggedText(target), line)


class JsonDocument(Document):
    """A JSON file whose strings are translated; keys, web addresses, paths and strings without letters stay."""

    def __init__(self, content: EncodedText, options: DocumentOptions) -> None:
        super().__init__(content, options)
        text = content.text
        try:
            json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{content.name} is not valid JSON ({error}).") from None
        self.spans: list[tuple[int, int]] = []
        segments, position, offset, line = [], 0, 0, 1
        for match in STRING.finditer(text):
            value = json.loads(match[0])
            offset += len(text[position : match.start()].encode("utf-8"))
            line += text.count("\n", position, match.start())
            position, start = match.end(), offset
            offset += len(match[0].encode("utf-8"))
            if KEY.match(text, match.end()) or not HAS_LETTERS.search(value) or NOT_TEXT.fullmatch(value):
                continue
            self.spans.append((start, offset))
            segments.append(Segment(TaggedText(value), None, line, preserve_space=True))
        self.segments = segments

    def splices(self, targets: Mapping[int, TargetText]) -> list[Splice]:
        ascii_only = self.content.utf8.isascii() and b"\\u" in self.content.utf8
        return [
            Splice(*self.spans[number], json.dumps(target.tagged.text, ensure_ascii=ascii_only))
            for number, target in targets.items()
        ]
