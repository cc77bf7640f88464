"""XLIFF 1.0 to 1.2 and 2.x: segments with their states; a translation is written as the segment's `target`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from heedful.errors import DataError
from heedful.formats.document import NOT_TRANSLATABLE, Document, DocumentOptions, TargetText
from heedful.formats.encoded_text import EncodedText, Splice
from heedful.formats.html import escape
from heedful.formats.segment import Segment, TaggedText
from heedful.formats.xml_parser import ElementSpan, SegmentCapture, XmlParser, set_attribute

FINAL = {"translated", "final", "signed-off", "reviewed"}  # states of a target that a corpus uses
UNITS = ("trans-unit", "segment")  # of versions 1 and 2
NO_TARGET = "no translation"


@dataclass
class XliffUnit:
    """A segment in both languages, and where its parts are in the file."""

    line: int
    span: ElementSpan  # of the trans-unit or segment
    source_language: str
    target_language: str
    version: str
    translatable: bool
    preserve_space: bool
    state: str = ""
    source: TaggedText | None = None
    target: TaggedText | None = None
    source_span: ElementSpan | None = None  # of the last of source and seg-source
    target_span: ElementSpan | None = None
    indent: str = ""

    def segment(self) -> Segment:
        translated = self.target is not None and (self.target.text.strip() or self.target.tags)
        problem = "" if translated else NO_TARGET
        if not self.translatable:
            problem = NOT_TRANSLATABLE
        elif translated and self.state and self.state not in FINAL and not self.state.startswith("x-"):
            problem = f"state {self.state}"
        target = self.target if translated else None
        return Segment(self.source or TaggedText(), target, self.line, problem, self.preserve_space)


class XliffParser(XmlParser[XliffUnit]):
    """Reads the segments of an XLIFF file of any version."""

    namespace = "urn:oasis:names:tc:xliff:document:"
    containers = frozenset({"g", "mrk", "pc"})

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.version, self.root = "", ""
        self.languages = ("", "")  # of the file element
        self.no_target_language: list[ElementSpan] = []  # xliff or file elements that name none
        self.unit: XliffUnit | None = None
        self.inherited = [(0, True, False)]  # depth of an element, and what it says of translate and xml:space

    def start(self, name: str, attributes: dict[str, str], span: ElementSpan) -> None:
        while self.inherited[-1][0] >= len(self.names):
            self.inherited.pop()
        _, translatable, preserve = self.inherited[-1]
        translatable = attributes.get("translate", "yes" if translatable else "no") != "no"
        preserve = attributes.get("xml:space", "preserve" if preserve else "default") == "preserve"
        self.inherited.append((len(self.names), translatable, preserve))
        if len(self.names) == 1:
            self.root, self.version = name, attributes.get("version", "")
        if name in ("xliff", "file"):
            self._languages(name, attributes, span)
        elif name in UNITS:
            self.keep_from = self.unit.span.start if self.unit else span.start
            state = attributes.get("state", "")
            self.unit = XliffUnit(self.line, span, *self.languages, self.version, translatable, preserve, state=state)
        elif name in ("source", "seg-source", "target") and self.unit and self.names[-2:-1] in ([u] for u in UNITS):
            if name == "source":
                self.unit.indent = self.indent_before(span.start)
            if name == "target":
                self.unit.state = attributes.get("state", self.unit.state)
            self.begin_segment(span, attributes)

    def _languages(self, name: str, attributes: dict[str, str], span: ElementSpan) -> None:
        if name == "xliff" and self.version.startswith("2"):
            names = "srcLang", "trgLang"
        elif name == "file" and not self.version.startswith("2"):
            names = "source-language", "target-language"
        else:
            return
        self.languages = attributes.get(names[0], ""), attributes.get(names[1], "")
        if not self.languages[1]:
            self.no_target_language.append(span)

    def end_segment(self, name: str, capture: SegmentCapture) -> None:
        assert self.unit is not None
        if name == "target":
            self.unit.target, self.unit.target_span = capture.tagged(), capture.span
        else:
            self.unit.source, self.unit.source_span = capture.tagged(), capture.span

    def end(self, name: str, span: ElementSpan) -> None:
        if name in UNITS and self.unit is not None:
            if self.unit.source is not None:
                self.units.append(self.unit)
            self.unit, self.keep_from = None, None

    def finish(self) -> None:
        if self.root != "xliff":
            raise DataError(f"{self.name} is XML with the root element {self.root!r}, not an XLIFF file.")

    def opaque(self, name: str, attributes: Mapping[str, str]) -> bool:
        protected = attributes.get("translate") == "no" or attributes.get("mtype") == "protected"
        return name not in self.containers or (name == "mrk" and protected)

    def code_of(self, name: str, attributes: Mapping[str, str]) -> tuple[str, str]:
        """Pairs are linked by `rid` or `id` in version 1 and by `startRef` in version 2."""
        if name in ("bx", "bpt", "sc", "sm"):
            return "open", attributes.get("rid") or attributes.get("id", "")
        if name in ("ex", "ept", "ec", "em"):
            return "close", attributes.get("startRef") or attributes.get("rid") or attributes.get("id", "")
        return "single", ""


class XliffDocument(Document):
    """An XLIFF file whose segments get a target."""

    encoding_errors = "xmlcharrefreplace"

    def __init__(self, content: EncodedText, options: DocumentOptions) -> None:
        super().__init__(content, options)
        self.parser = XliffParser(content.name)
        self.units = list(self.parser.read([content.utf8]))
        self.segments = [unit.segment() for unit in self.units]

    def splices(self, targets: Mapping[int, TargetText]) -> list[Splice]:
        splices = [splice for number, target in targets.items() for splice in self._splices(self.units[number], target)]
        return splices + self._language_splices()

    def _splices(self, unit: XliffUnit, target: TargetText) -> list[Splice]:
        assert unit.source_span is not None
        markup = target.tagged.markup(escape)
        second = unit.version.startswith("2")
        state = "translated" if not target.unsure else "initial" if second else "needs-review-translation"
        states = unit.version != "1.0"
        if unit.target_span is not None:
            opening = unit.target_span.opening
            opening = f"{opening.removesuffix('/>').rstrip()}>" if unit.target_span.empty else opening
        else:
            prefix = re.match(r"<([^\s:/>]+:)?", unit.source_span.opening)
            opening = f"<{prefix[1] or '' if prefix else ''}target>"
        if states and not second:
            opening = set_attribute(opening, "state", state)
        element = f"{opening}{markup}</{opening[1:-1].split()[0]}>"
        if unit.target_span is not None:
            splices = [Splice(unit.target_span.start, unit.target_span.end, element)]
        else:
            splices = [Splice(unit.source_span.end, unit.source_span.end, f"{unit.indent}{element}")]
        if second:
            tag = set_attribute(unit.span.opening, "state", state)
            splices.append(Splice(unit.span.start, unit.span.content, tag))
        return splices

    def _language_splices(self) -> list[Splice]:
        """The target language, where the file does not name it yet."""
        if not self.parser.no_target_language:
            return []
        language, name = self.options.target_language, "trgLang"
        if not self.parser.version.startswith("2"):
            name = "target-language"
        if language is None:
            if name == "trgLang":  # which version 2 requires
                raise DataError(
                    f"{self.content.name} has no trgLang, so it does not say what it is to be translated to; give the"
                    " target language."
                )
            return []
        return [
            Splice(span.start, span.content, set_attribute(span.opening, name, language))
            for span in self.parser.no_target_language
        ]


def is_xliff(head: str) -> bool:
    """Whether XML that begins so is an XLIFF file."""
    return re.search(r"<(\w+:)?xliff[\s>]", head) is not None
