"""TMX 1.1 to 1.4: translation memories, read in chunks; a translation is written as a new `tuv`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from heedful.errors import DataError
from heedful.formats.document import Document, DocumentOptions, TargetText
from heedful.formats.encoded_text import EncodedText, Splice
from heedful.formats.html import escape
from heedful.formats.language_tags import best_match, normalize_tag
from heedful.formats.segment import Segment, TaggedText
from heedful.formats.xml_parser import ElementSpan, SegmentCapture, XmlError, XmlParser

ANY_LANGUAGE = "*all*"  # a header's srclang: every variant may be the source


@dataclass
class TmxVariant:
    """A `tuv`: a segment in one language."""

    language: str
    text: TaggedText
    seg: ElementSpan
    opening: str  # its own tag
    indent: str  # white space before it
    end: int = 0


@dataclass
class TmxUnit:
    """A `tu`: the same segment in several languages."""

    line: int
    source_language: str
    variants: list[TmxVariant] = field(default_factory=list)

    def languages(self) -> list[str]:
        return [variant.language for variant in self.variants]

    def best(self, language: str) -> list[TmxVariant]:
        """The variants in the language that fits best."""
        tag = best_match(language, self.languages())
        return [variant for variant in self.variants if tag is not None and variant.language == tag]


class TmxParser(XmlParser[TmxUnit]):
    """Reads the units of a TMX file."""

    containers = frozenset({"hi"})

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.source_language = ANY_LANGUAGE  # of the header
        self.unit: TmxUnit | None = None
        self.language, self.variant_span, self.variant_indent = "", ElementSpan(0, 0, ""), ""
        self.root = ""

    def start(self, name: str, attributes: dict[str, str], span: ElementSpan) -> None:
        if len(self.names) == 1:
            self.root = name
        if name == "header":
            self.source_language = attributes.get("srclang", ANY_LANGUAGE)
        elif name == "tu":
            self.unit, self.keep_from = TmxUnit(self.line, attributes.get("srclang", self.source_language)), span.start
        elif name == "tuv" and self.unit is not None:
            self.language = attributes.get("xml:lang") or attributes.get("lang") or ""
            self.variant_span, self.variant_indent = span, self.indent_before(span.start)
        elif name == "seg" and self.unit is not None and self.names[-2:-1] == ["tuv"]:
            self.begin_segment(span, attributes)

    def end_segment(self, name: str, capture: SegmentCapture) -> None:
        assert self.unit is not None
        text, opening = capture.tagged(), self.variant_span.opening
        self.unit.variants.append(TmxVariant(self.language, text, capture.span, opening, self.variant_indent))

    def end(self, name: str, span: ElementSpan) -> None:
        if name == "tuv" and self.unit is not None and self.unit.variants:
            self.unit.variants[-1].end = span.end
        elif name == "tu" and self.unit is not None:
            self.units.append(self.unit)
            self.unit, self.keep_from = None, None

    def finish(self) -> None:
        if self.root != "tmx":
            raise DataError(f"{self.name} is XML with the root element {self.root!r}, not a TMX file.")

    def code_of(self, name: str, attributes: Mapping[str, str]) -> tuple[str, str]:
        kind = {"bpt": "open", "ept": "close"}.get(name, "single")
        return kind, attributes.get("i", "")


def read_tmx(chunks: Iterable[bytes], name: str, source: str, target: str) -> Iterator[Segment]:
    """Every pair of variants in these two languages; a unit without one of them has a problem."""
    for unit in TmxParser(name).read(chunks):
        sources, targets = unit.best(source), unit.best(target)
        if not sources or not targets:
            empty = TaggedText()
            missing = source if not sources else target
            yield Segment(sources[0].text if sources else empty, None, unit.line, f"no segment in {missing!r}")
        for a in sources:
            for b in targets:
                yield Segment(a.text, b.text, unit.line)


def tmx_languages(chunks: Iterable[bytes], name: str) -> tuple[str, dict[str, int]]:
    """The source language that the file names (empty if any), and its languages with their numbers of segments."""
    parser, counts = TmxParser(name), dict[str, int]()
    source = ""
    try:
        for unit in parser.read(chunks):
            source = source or unit.source_language
            for variant in unit.variants:
                tag = normalize_tag(variant.language)
                counts[tag] = counts.get(tag, 0) + 1
    except XmlError:
        if not counts:
            raise
    return ("" if source == ANY_LANGUAGE else normalize_tag(source)), counts


class TmxDocument(Document):
    """A TMX file whose units get a variant in the target language."""

    encoding_errors = "xmlcharrefreplace"

    def __init__(self, content: EncodedText, options: DocumentOptions) -> None:
        super().__init__(content, options)
        if options.target_language is None:
            raise DataError(f"{content.name} may hold many languages; give the target language to write.")
        self.language = options.target_language
        units = [unit for unit in TmxParser(content.name).read([content.utf8]) if unit.variants]
        sources = [(unit, source) for unit in units if (source := self._source(unit)) is not None]
        if units and not sources:
            languages = ", ".join(sorted({language for unit in units for language in unit.languages()}))
            raise DataError(
                f"{content.name} has no segment in {options.source_language!r}; its languages are {languages}."
            )
        self.units, self.sources = [unit for unit, _ in sources], [source for _, source in sources]
        self.segments = [Segment(source.text, self._target(unit), unit.line) for unit, source in sources]

    def _source(self, unit: TmxUnit) -> TmxVariant | None:
        """The variant to translate; None if the unit has none in the language that is asked for."""
        if variants := unit.best(self.options.source_language or unit.source_language):
            return variants[0]
        return unit.variants[0] if self.options.source_language is None else None

    def _target(self, unit: TmxUnit) -> TaggedText | None:
        variants = unit.best(self.language)
        return variants[0].text if variants and variants[0].text.text.strip() else None

    def splices(self, targets: Mapping[int, TargetText]) -> list[Splice]:
        return [self._splice(self.units[number], self.sources[number], target) for number, target in targets.items()]

    def _splice(self, unit: TmxUnit, source: TmxVariant, target: TargetText) -> Splice:
        markup = target.tagged.markup(escape)
        if (variants := unit.best(self.language)) and variants[0] is not source:
            seg = variants[0].seg
            if seg.empty:
                return Splice(seg.start, seg.end, f"<seg>{markup}</seg>")
            return Splice(seg.content, seg.content_end, markup)
        last = unit.variants[-1]
        attribute = "xml:lang" if "xml:lang" in source.opening else "lang"
        variant = f'<tuv {attribute}="{escape(self.language)}"><seg>{markup}</seg></tuv>'
        return Splice(last.end, last.end, f"{source.indent}{variant}")


def is_tmx(head: str) -> bool:
    """Whether XML that begins so is a TMX file."""
    return re.search(r"<tmx[\s>]", head) is not None
