"""Termbases -> terms: CSV, tab-separated files and TBX, in any encoding.

A row has a source term, its translation, and optionally further allowed forms of it; an empty translation means that
the term is not translated. A TBX file has concepts, each with the terms of several languages.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from heedful.errors import DataError
from heedful.formats.encoded_text import EncodedText, read_document
from heedful.formats.language_tags import WantedLanguages, best_match
from heedful.formats.tables import pair_columns, table_dialect
from heedful.formats.xml_parser import ElementSpan, SegmentCapture, XmlParser

FORM_SEPARATOR = "|"  # between allowed forms in one cell
COMMENT = "#"
DELIMITERS = {",": "a comma", ";": "a semicolon", "\t": "a TAB"}
DO_NOT_TRANSLATE = {"", "=", "dnt", "do not translate"}  # in the column of translations
TBX_NAMESPACE = "urn:iso:std:iso:30042"
CONCEPTS, LANGUAGES = {"conceptEntry", "termEntry"}, {"langSec", "langSet"}
REJECTED = {"deprecatedTerm-admn-sts", "supersededTerm-admn-sts"}  # administrative states of terms that are not used


@dataclass(frozen=True)
class Term:
    """A source term and the forms of its translation, one of which is used; none for "do not translate"."""

    source: str
    forms: tuple[str, ...] = ()


@dataclass
class TbxConcept:
    """The terms of a concept, by language."""

    terms: dict[str, list[str]] = field(default_factory=dict)


def read_terms(path: Path, languages: WantedLanguages | None = None) -> list[Term]:
    """The terms of a file, by its content: TBX, or a table. TBX needs to know the languages."""
    document = read_document(path)
    wanted = languages or WantedLanguages()
    head = document.text[:4096].lstrip("\ufeff \n\r\t")
    terms = list(_tbx_terms(document, wanted) if head.startswith("<") else _table_terms(document, wanted))
    if not terms:
        raise DataError(f"{path} has no term; give a table of source term and translation, or a TBX file.")
    return terms


def terms_of_mapping(terms: Mapping[str, str | Sequence[str] | None]) -> tuple[Term, ...]:
    """{"dog": "Hund", "cat": ["Katze", "Katzen"], "heedful": None} -> terms; None for "do not translate"."""

    def forms(value: str | Sequence[str] | None) -> tuple[str, ...]:
        return () if value is None else (value,) if isinstance(value, str) else tuple(value)

    return tuple(Term(source, forms(value)) for source, value in terms.items())


def _table_terms(document: EncodedText, languages: WantedLanguages) -> Iterator[Term]:
    """Columns by the names in a header (source, target, or languages), otherwise the first and the second."""
    text = document.text
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(COMMENT)]
    first = lines[0] if lines else ""
    dialect = table_dialect(first, tabs="\t" in first)
    columns = (0, 1)
    for number, row in enumerate(dialect.reader(io.StringIO(text, newline=""))):
        cells = [cell.strip() for cell in row]
        if not any(cells) or cells[0].startswith(COMMENT):
            continue
        if number == 0 and (named := pair_columns(cells, languages)) is not None:
            columns = named
            continue
        if len(cells) <= max(columns):
            raise DataError(
                f"row {number + 1} of {document.name} has {len(cells)} column{'s' * (len(cells) > 1)}; give a source"
                f" term and its translation, separated by {DELIMITERS[dialect.delimiter]}."
            )
        if source := cells[columns[0]]:
            yield Term(source, _forms(cells[columns[1]]))


def _forms(cell: str) -> tuple[str, ...]:
    if cell.lower() in DO_NOT_TRANSLATE:
        return ()
    return tuple(dict.fromkeys(form.strip() for form in cell.split(FORM_SEPARATOR) if form.strip()))


class TbxParser(XmlParser[TbxConcept]):
    """Reads the concepts of TBX 2 (`termEntry`) and 3 (`conceptEntry`)."""

    namespace = TBX_NAMESPACE
    containers = frozenset({"hi"})

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.concept, self.language, self.term = TbxConcept(), "", ""

    def start(self, name: str, attributes: dict[str, str], span: ElementSpan) -> None:
        if name in CONCEPTS:
            self.concept, self.keep_from = TbxConcept(), span.start
        elif name in LANGUAGES:
            self.language = attributes.get("xml:lang", "")
        elif name in ("term", "termNote"):
            self.begin_segment(span, attributes | {"element": name})

    def end(self, name: str, span: ElementSpan) -> None:
        if name in CONCEPTS:
            self.units.append(self.concept)
            self.keep_from = None

    def end_segment(self, name: str, capture: SegmentCapture) -> None:
        text = " ".join(capture.tagged().text.split())
        terms = self.concept.terms.setdefault(self.language, [])
        if capture.attributes["element"] == "term" and text:
            terms.append(text)
        elif text in REJECTED and terms:
            terms.pop()


def _tbx_terms(document: EncodedText, languages: WantedLanguages) -> Iterator[Term]:
    concepts = list(TbxParser(document.name).read([document.utf8]))
    present = list(dict.fromkeys(language for concept in concepts for language in concept.terms))
    source, target = languages.source, languages.target
    if (source is None or target is None) and len(present) == 2:
        source, target = present
    chosen = [best_match(language, present) if language else None for language in (source, target)]
    if None in chosen:
        raise DataError(
            f"{document.name} has the languages {', '.join(present) or 'of no term'}; give"
            " the codes of two of them as source and target language."
        )
    for concept in concepts:
        forms = tuple(dict.fromkeys(concept.terms.get(str(chosen[1]), [])))
        for term in concept.terms.get(str(chosen[0]), []) if forms else []:
            yield Term(term, forms)
