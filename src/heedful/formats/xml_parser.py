"""XML -> segments with their byte offsets, by expat, for files that may be hostile.

Entities are refused and nothing outside the file is read: external DTDs and entities are never loaded. The depth of
elements and the size of a segment are bounded, and the file is read in chunks, so memory is bounded too. A subclass
knows the elements of a format.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from xml.parsers import expat

from heedful.errors import DataError, quote
from heedful.formats.segment import InlineCode, TaggedText, nest_codes

MAX_DEPTH = 200  # nested elements
MAX_UNIT = 1 << 24  # bytes of a segment with everything that belongs to it
XML_NAMESPACE = "http://www.w3.org/XML/1998/namespace"
TAG = re.compile(rb"""<[^"'>]*(?:(?:"[^"]*"|'[^']*')[^"'>]*)*>""")
U = TypeVar("U")


class XmlError(DataError):
    """A file that is not well-formed XML from some line on."""

    def __init__(self, name: object, line: int, why: str) -> None:
        super().__init__(f"line {line} of {name} is not well-formed XML ({why}); correct the file, or export it again.")
        self.line, self.why = line, why


@dataclass
class ElementSpan:
    """An element in the file: byte offsets of its tags and of what they contain, and its opening tag."""

    start: int
    content: int
    opening: str
    content_end: int = 0
    end: int = 0

    @property
    def empty(self) -> bool:
        return self.opening.endswith("/>")


@dataclass
class SegmentCapture:
    """The text and the inline codes of the segment that is being read."""

    span: ElementSpan
    attributes: dict[str, str]
    texts: list[str] = field(default_factory=list)
    codes: list[InlineCode] = field(default_factory=list)
    length: int = 0  # characters of text
    depth: int = 0  # elements inside an inline code, whose content is not text
    code: ElementSpan | None = None
    code_name: tuple[str, Mapping[str, str]] = ("", {})

    def add_text(self, text: str) -> None:
        self.texts.append(text)
        self.length += len(text)

    def tagged(self) -> TaggedText:
        return nest_codes("".join(self.texts), self.codes)


class XmlParser(ABC, Generic[U]):
    """Reads units (a segment in two languages) of one XML format."""

    namespace = ""  # prefix of the namespaces whose elements belong to the format
    containers: frozenset[str] = frozenset()  # inline elements that contain text

    def __init__(self, name: str) -> None:
        self.name = name
        self.units: list[U] = []  # finished units
        self.names: list[str] = []  # open elements
        self.spans: list[ElementSpan] = []
        self.capture: SegmentCapture | None = None
        self.keep_from: int | None = None  # offset from which bytes are needed; None outside of a unit
        self.window, self.window_start = bytearray(), 0
        self.parser = expat.ParserCreate("utf-8", " ")
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self.parser.DefaultHandlerExpand = self._other
        self.parser.EntityDeclHandler = self._refuse_entity
        self.parser.buffer_text = False

    def read(self, chunks: Iterable[bytes]) -> Iterator[U]:
        """The units of a file in UTF-8."""
        received = 0  # bytes
        try:
            for chunk in chunks:
                received += len(chunk)
                self.window += chunk
                self.parser.Parse(chunk, False)
                yield from self._take()
            self.parser.Parse(b"", True)
        except expat.ExpatError as error:
            yield from self._take()
            if not received:
                raise DataError(f"{self.name} is empty; give another file.") from None
            raise XmlError(self.name, error.lineno, expat.ErrorString(error.code)) from None
        yield from self._take()
        self.finish()

    def _take(self) -> list[U]:
        """The finished units; forget the bytes before what is still needed."""
        position = max(0, self.parser.CurrentByteIndex)
        needed = position if self.keep_from is None else self.keep_from
        del self.window[: max(0, needed - self.window_start)]
        self.window_start = max(self.window_start, needed)
        if len(self.window) > MAX_UNIT:
            raise DataError(
                f"line {self.parser.CurrentLineNumber} of {self.name} begins a segment or tag of more than"
                f" {MAX_UNIT >> 20} MB, which is no sentence; split or remove it."
            )
        units, self.units = self.units, []
        return units

    @abstractmethod
    def start(self, name: str, attributes: dict[str, str], span: ElementSpan) -> None:
        """An element of the format begins, outside of a segment."""

    @abstractmethod
    def end(self, name: str, span: ElementSpan) -> None:
        """An element of the format ends, outside of a segment."""

    @abstractmethod
    def end_segment(self, name: str, capture: SegmentCapture) -> None:
        """A segment that `start` began to capture ends."""

    def code_of(self, name: str, attributes: Mapping[str, str]) -> tuple[str, str]:
        """The kind (single, open, close) and the key of an inline code."""
        return "single", ""

    def opaque(self, name: str, attributes: Mapping[str, str]) -> bool:
        """Whether the content of an inline element is not to be translated."""
        return name not in self.containers

    def finish(self) -> None:
        """The file has ended."""

    def begin_segment(self, span: ElementSpan, attributes: dict[str, str]) -> None:
        self.capture = SegmentCapture(span, attributes)

    def raw(self, start: int, end: int) -> str:
        """The bytes of the file between two offsets, as text."""
        return bytes(self.window[start - self.window_start : end - self.window_start]).decode("utf-8")

    def indent_before(self, offset: int) -> str:
        """The white space before an offset."""
        start = end = offset - self.window_start
        while start and self.window[start - 1] in b" \t\r\n":
            start -= 1
        return self.window[start:end].decode()

    @property
    def line(self) -> int:
        return self.parser.CurrentLineNumber

    def _start(self, full_name: str, attributes: dict[str, str]) -> None:
        if len(self.names) >= MAX_DEPTH:
            raise DataError(
                f"line {self.line} of {self.name} has more than {MAX_DEPTH} elements inside each other; no translation"
                " file needs that many, so it is refused."
            )
        offset = self.parser.CurrentByteIndex
        match = TAG.match(self.window, offset - self.window_start)
        opening = match[0].decode("utf-8") if match else ""
        span = ElementSpan(offset, offset + len(opening.encode("utf-8")), opening)
        name = self._local(full_name)
        self.names.append(name)
        self.spans.append(span)
        if self.capture is not None:
            self._start_inline(self.capture, name, _plain(attributes), span)
        elif name:
            self.start(name, _plain(attributes), span)

    def _end(self, full_name: str) -> None:
        name, span = self.names.pop(), self.spans.pop()
        span.content_end = self.parser.CurrentByteIndex
        span.end = span.content_end
        if span.empty:
            span.content_end = span.end = span.content
        elif match := TAG.match(self.window, span.content_end - self.window_start):
            span.end = span.content_end + len(match[0])
        capture = self.capture
        if capture is not None and capture.span is not span:
            self._end_inline(capture, name, span)
        elif capture is not None:
            self.capture = None
            self.end_segment(name, capture)
        elif name:
            self.end(name, span)

    def _start_inline(self, capture: SegmentCapture, name: str, attributes: dict[str, str], span: ElementSpan) -> None:
        if capture.depth or self.opaque(name, attributes):
            if not capture.depth:
                capture.code, capture.code_name = span, (name, attributes)
            capture.depth += 1
        else:
            key = f"{name} element at {span.start}"
            capture.codes.append(InlineCode(span.opening, capture.length, "open", key))

    def _end_inline(self, capture: SegmentCapture, name: str, span: ElementSpan) -> None:
        if not capture.depth:
            closing = "" if span.empty else self.raw(span.content_end, span.end)
            capture.codes.append(InlineCode(closing, capture.length, "close", f"{name} element at {span.start}"))
            return
        capture.depth -= 1
        if not capture.depth and capture.code is not None:
            kind, key = self.code_of(*capture.code_name)
            markup = self.raw(capture.code.start, span.end)
            capture.codes.append(InlineCode(markup, capture.length, kind, key))

    def _text(self, data: str) -> None:
        if self.capture is not None and not self.capture.depth:
            self.capture.add_text(data)

    def _other(self, data: str) -> None:
        """A reference to an entity that an external DTD declares is an inline code."""
        if data.startswith("&") and self.capture is not None and not self.capture.depth:
            self.capture.codes.append(InlineCode(data, self.capture.length))

    def _refuse_entity(self, name: str, *_: object) -> None:
        raise DataError(
            f"line {self.line} of {self.name} declares the entity {quote(name)}; entities are not read, because they"
            " can hide other files or grow without end: replace them by their text."
        )

    def _local(self, full_name: str) -> str:
        """The name of an element of the format; empty for those of other namespaces."""
        namespace, _, name = full_name.rpartition(" ")
        return name if not namespace or namespace.startswith(self.namespace) else ""


def _plain(attributes: dict[str, str]) -> dict[str, str]:
    """`xml:lang` and `xml:space` by these names; others without namespaces."""
    return {name.replace(f"{XML_NAMESPACE} ", "xml:"): value for name, value in attributes.items()}


def set_attribute(tag: str, name: str, value: str) -> str:
    """An opening tag with this attribute; `value` needs no escaping."""
    pattern = re.compile(rf"""(\s{re.escape(name)}\s*=\s*)("[^"]*"|'[^']*')""")
    if pattern.search(tag):
        return pattern.sub(lambda match: f'{match[1]}"{value}"', tag, count=1)
    end = "/>" if tag.endswith("/>") else ">"
    return f'{tag.removesuffix(end).rstrip()} {name}="{value}"{end}'
