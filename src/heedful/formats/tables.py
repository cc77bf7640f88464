"""CSV and TSV: pairs from two columns, and a column to translate.

Python's csv module reads and writes records. A record that changes is written again in the dialect of the file; all
other records keep their bytes.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from heedful.errors import DataError
from heedful.formats.document import Document, DocumentOptions, TargetText
from heedful.formats.encoded_text import EncodedText, Splice, utf8_chunks
from heedful.formats.language_tags import WantedLanguages, best_match, is_language_tag
from heedful.formats.segment import Segment, TaggedText

MAX_CELL = 1 << 20  # characters
SOURCE_NAMES = ("source", "src", "source_text", "text", "original")
TARGET_NAMES = ("target", "tgt", "trg", "target_text", "translation")
DOCUMENT_NAMES = ("document", "article", "dialogue", "text", "body", "description", "abstract")
# "abstract" is in both: the summary of a paper's body, and the document of its title.
SUMMARY_NAMES = ("summary", "highlights", "synopsis", "headline", "title", "abstract")
SHORT_ROW = "fewer columns than needed"


@dataclass(frozen=True)
class TableDialect:
    """How a table is written."""

    delimiter: str
    quoted: bool = True  # TSV: no

    def reader(self, lines: Iterable[str]) -> Any:  # its type has no public name
        if self.quoted:
            return csv.reader(lines, delimiter=self.delimiter)
        return csv.reader(lines, delimiter=self.delimiter, quoting=csv.QUOTE_NONE, quotechar=None)

    def line(self, cells: Sequence[str], newline: str) -> str:
        if not self.quoted:
            return self.delimiter.join(" ".join(cell.split("\t")) for cell in cells) + newline
        out = io.StringIO()
        csv.writer(out, delimiter=self.delimiter, lineterminator=newline).writerow(cells)
        return out.getvalue()


def table_dialect(head: str, tabs: bool) -> TableDialect:
    """TAB without quotes, or the delimiter that the first line has most of."""
    if tabs:
        return TableDialect("\t", quoted=False)
    first = head.partition("\n")[0]
    return TableDialect(max(",;\t", key=first.count))


def pair_columns(header: Sequence[str], languages: WantedLanguages, summaries: bool = False) -> tuple[int, int] | None:
    """The columns of source and target by the names in a header; None if the first row is not a header."""
    names = [cell.strip().lower() for cell in header]
    pair = pair_names(names, languages, summaries)
    return None if pair is None else (names.index(pair[0]), names.index(pair[1]))


def pair_names(names: Sequence[str], languages: WantedLanguages, summaries: bool = False) -> tuple[str, str] | None:
    """The names of source and target; with `summaries` also those of a document and its summary."""
    source = _name(names, SOURCE_NAMES, languages.source)
    target = _name(names, TARGET_NAMES, languages.target)
    if summaries and (source is None or target is None):
        # a document's name first: a column `source` beside an article names its publisher
        source = _name(names, (*DOCUMENT_NAMES, *SOURCE_NAMES))
        target = _name(names, (*TARGET_NAMES, *SUMMARY_NAMES))
    return (source, target) if source is not None and target is not None and source != target else None


def _name(names: Sequence[str], usual: Sequence[str], language: str | None = None) -> str | None:
    if language and (tag := best_match(language, [name for name in names if 2 <= len(name) <= 8])):
        return tag
    return next((name for name in usual if name in names), None)


def first_row(file: BinaryIO, name: str, tabs: bool, languages: WantedLanguages) -> tuple[list[str], bool]:
    """The cells of the first row, and whether it is a header."""
    first = next(_text_lines(utf8_chunks(file, name)), "")
    try:
        row: list[str] = next(table_dialect(first, tabs).reader([first]), [])
    except csv.Error:  # of a row that is reported when it is read
        return [], False
    return [cell.strip() for cell in row], _is_header(row, languages)


def are_languages(row: Sequence[str]) -> bool:
    """Whether every cell is another language tag."""
    tags = [cell.strip() for cell in row]
    return len(set(tags)) == len(tags) > 1 and all(map(is_language_tag, tags))


def _is_header(row: Sequence[str], languages: WantedLanguages) -> bool:
    """Names of columns, or language tags alone.

    Two tags may also be two short words (English "to", German "zu"): they are a header only if every language that is
    wanted is one of them.
    """
    if pair_columns(row, languages, summaries=True):
        return True
    return are_languages(row) and (len(row) > 2 or languages.are_among([cell.strip() for cell in row]))


def read_table(file: BinaryIO, name: str, tabs: bool, languages: WantedLanguages) -> Iterator[Segment]:
    """Pairs of a CSV or TSV file: by the names in its header, otherwise the first two columns.

    A first row of language tags alone is a header too.
    """
    lines = _text_lines(utf8_chunks(file, name))
    first = next(lines, "")
    dialect = table_dialect(first, tabs)
    reader = dialect.reader(_chain(first, lines))
    columns, header = (0, 1), True
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            yield Segment(TaggedText(), None, line, f"not valid CSV ({error})", defect=True)
            continue
        if row is None:
            return
        if header and _is_header(row, languages):
            columns, header = pair_columns(row, languages, summaries=True) or columns, False
            continue
        header = False
        if row:
            yield row_segment(row, columns, line)


def row_segment(row: Sequence[str], columns: tuple[int, int], line: int) -> Segment:
    if len(row) <= max(columns):
        return Segment(TaggedText(" ".join(row)), None, line, SHORT_ROW, defect=True)
    return Segment(TaggedText(row[columns[0]]), TaggedText(row[columns[1]]), line)


def _text_lines(chunks: Iterable[bytes]) -> Iterator[str]:
    """Lines with their ends; a line ends at a line feed."""
    rest = ""
    for chunk in chunks:
        *lines, rest = (rest + chunk.decode("utf-8")).split("\n")
        yield from (f"{line}\n" for line in lines)
        if len(rest) > MAX_CELL:
            rest = rest[:MAX_CELL]  # refused by its reader as too large
    if rest:
        yield rest


def _chain(first: str, lines: Iterator[str]) -> Iterator[str]:
    if first:
        yield first
    yield from lines


class TableDocument(Document):
    """A CSV or TSV file with a column to translate, into the target column or in place."""

    def __init__(self, content: EncodedText, options: DocumentOptions, tabs: bool) -> None:
        super().__init__(content, options)
        self.dialect = table_dialect(content.text[:4096], tabs)
        lines = content.text.splitlines(keepends=True) if tabs else content.text.split("\n")
        if not tabs:
            lines = [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
        self.records = self._read(lines)
        header = self.records[0][0] if self.records else []
        self.columns = self._columns(header)
        body = self.records[1:] if self.has_header else self.records
        self.places = [n for n, (row, _, _, _) in enumerate(body, int(self.has_header)) if len(row) > self.columns[0]]
        self.segments = [self._segment(n) for n in self.places]

    def _read(self, lines: list[str]) -> list[tuple[list[str], int, int, int]]:
        """Every record with its byte span and its line."""
        records, before = [], 0
        reader = self.dialect.reader(lines)
        offsets = [0]
        for line in lines:
            offsets.append(offsets[-1] + len(line.encode("utf-8")))
        try:
            for row in reader:
                after = reader.line_num
                records.append((row, offsets[before], offsets[after], before + 1))
                before = after
        except csv.Error as error:
            raise DataError(f"line {before + 1} of {self.content.name} is not valid CSV ({error}).") from None
        return records

    def _columns(self, header: Sequence[str]) -> tuple[int, int]:
        """The column to translate, and the column to write."""
        names = [cell.strip().lower() for cell in header]
        languages = WantedLanguages(self.options.source_language, self.options.target_language)
        wanted = self.options.column
        both = pair_columns(header, languages)
        self.has_header = both is not None
        if wanted is None and both is not None:
            return both
        if wanted is not None and wanted.isdigit() and 1 <= int(wanted) <= len(header):
            return (int(wanted) - 1,) * 2
        if wanted is not None and wanted.lower() in names:
            self.has_header = True
            return (names.index(wanted.lower()),) * 2
        columns = ", ".join(name for name in header if name.strip()) or "none"
        raise DataError(
            f"{self.content.name} does not show which column to translate: its first row is {columns}; give the column"
            " by its name or by its number from 1."
        )

    def _segment(self, number: int) -> Segment:
        row, _, _, line = self.records[number]
        source, target = self.columns
        existing = TaggedText(row[target]) if source != target and len(row) > target and row[target].strip() else None
        return Segment(TaggedText(row[source]), existing, line, preserve_space=self.dialect.quoted)

    def splices(self, targets: Mapping[int, TargetText]) -> list[Splice]:
        return [self._splice(self.places[number], target.tagged.text) for number, target in targets.items()]

    def _splice(self, number: int, text: str) -> Splice:
        row, start, end, _ = self.records[number]
        cells = [*row, *[""] * (self.columns[1] + 1 - len(row))]
        cells[self.columns[1]] = text
        raw = self.content.utf8[start:end]
        newline = "\r\n" if raw.endswith(b"\r\n") else "\n" if raw.endswith(b"\n") else ""
        return Splice(start, end, self.dialect.line(cells, newline))
