"""The formats of files with sentence pairs, how they are recognized, and in which languages each is read."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from heedful.errors import DataError
from heedful.formats.encoded_text import detect_encoding, read_leniently, utf8_chunks
from heedful.formats.format_names import packed_stem
from heedful.formats.json_files import NO_PAIR, NO_TEXT, read_json_lines
from heedful.formats.language_tags import WantedLanguages, best_match, match_rank
from heedful.formats.line_files import DroppedLines, open_bytes, open_unpacked, read_pairs, read_tsv
from heedful.formats.parquet import read_parquet
from heedful.formats.po import parse_po, read_po
from heedful.formats.segment import Segment, TaggedText
from heedful.formats.tables import are_languages, first_row, pair_columns, read_table
from heedful.formats.tmx import is_tmx, read_tmx, tmx_languages
from heedful.formats.xliff import XliffParser, is_xliff
from heedful.formats.xml_parser import XmlError

HEAD = 8192  # bytes that show the format of a file
CHECKED_OBJECTS = 100  # of a file of objects, in which a pair is looked for
EXTENSIONS = {
    ".tmx": "tmx", ".xlf": "xliff", ".xliff": "xliff", ".sdlxliff": "xliff", ".mqxliff": "xliff", ".mxliff": "xliff",
    ".po": "po", ".pot": "po", ".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl",
    ".parquet": "parquet",
}  # fmt: skip


@dataclass(frozen=True)
class PairFormat(ABC):
    """A file of pairs in a known format; `languages` are those to read."""

    path: Path
    languages: WantedLanguages

    @property
    def files(self) -> list[Path]:
        return [self.path]

    @property
    @abstractmethod
    def description(self) -> str:
        """The format and the languages."""

    @abstractmethod
    def segments(self) -> Iterator[Segment]:
        """All pairs in order."""

    def check_languages(self) -> None:  # noqa: B027
        """An error that lists the languages of the file, if they are not those to read."""

    def __str__(self) -> str:
        return " and ".join(map(str, self.files))


@dataclass(frozen=True)
class TmxPairs(PairFormat):
    """A translation memory."""

    source: str = ""
    target: str = ""

    @classmethod
    def open(cls, path: Path, wanted: WantedLanguages) -> TmxPairs:
        """Choose two languages among those of the file."""
        with open_unpacked(path) as file:
            named, counts = tmx_languages(utf8_chunks(file, path), str(path))
        source = best_match(wanted.source or named, counts) if wanted.source or named else None
        if source is None and (wanted.source or len(counts) != 2):
            raise _language_error(path, "source_language", wanted.source, counts)
        others = [tag for tag in counts if tag != source]
        target = best_match(wanted.target, others) if wanted.target else others[0] if len(others) == 1 else None
        if source is None and target is not None:
            source = next(tag for tag in counts if tag != target)
        if source is None or target is None:
            raise _language_error(path, "target_language", wanted.target, counts)
        return cls(path, wanted, source, target)

    @property
    def description(self) -> str:
        return f"TMX, {self.source} to {self.target}"

    def segments(self) -> Iterator[Segment]:
        with open_unpacked(self.path) as file:
            yield from read_tmx(utf8_chunks(file, self.path), str(self.path), self.source, self.target)


@dataclass(frozen=True)
class XliffPairs(PairFormat):
    """A localization file with states."""

    @property
    def description(self) -> str:
        return "XLIFF"

    def check_languages(self) -> None:
        counts: dict[str, int] = {}
        try:
            with open_unpacked(self.path) as file:
                for unit in XliffParser(str(self.path)).read(utf8_chunks(file, self.path)):
                    if _direction(unit.source_language, unit.target_language, self.languages):
                        return
                    pair = f"{unit.source_language} to {unit.target_language or 'no language'}"
                    counts[pair] = counts.get(pair, 0) + 1
        except XmlError:
            return
        if counts:
            wanted = f"{self.languages.source or 'any'} to {self.languages.target or 'any'}"
            raise _language_error(self.path, "source_language and target_language", wanted, counts)

    def segments(self) -> Iterator[Segment]:
        with open_unpacked(self.path) as file:
            for unit in XliffParser(str(self.path)).read(utf8_chunks(file, self.path)):
                segment = unit.segment()
                direction = _direction(unit.source_language, unit.target_language, self.languages)
                if not direction:
                    languages = f"{unit.source_language} to {unit.target_language}"
                    segment = Segment(segment.source, None, segment.line, f"language {languages}")
                yield _reversed(segment) if direction == "reversed" else segment


@dataclass(frozen=True)
class PoPairs(PairFormat):
    """Messages of gettext; the header names the target language."""

    @property
    def description(self) -> str:
        return "PO"

    def check_languages(self) -> None:
        language, source = self._languages()
        if not _direction(source, language, self.languages):
            raise _language_error(self.path, "target_language", self.languages.target, {language: 0})

    def _languages(self) -> tuple[str, str]:
        try:
            metadata = parse_po(read_leniently(self.path).text, str(self.path)).metadata
        except DataError:
            return "", ""
        return str(metadata.get("Language", "")), str(metadata.get("X-Source-Language", ""))

    def segments(self) -> Iterator[Segment]:
        language, source = self._languages()
        backwards = _direction(source, language, self.languages) == "reversed"
        for segment in read_po(read_leniently(self.path)):
            yield _reversed(segment) if backwards else segment


@dataclass(frozen=True)
class TablePairs(PairFormat):
    """A CSV file, or a TSV file with a header."""

    tabs: bool = False

    @property
    def description(self) -> str:
        cells, is_header = self._first_row()
        kind = "TSV" if self.tabs else "CSV"
        if is_header:
            return f"{kind}, header: {', '.join(cells)}"
        return f"{kind}, no header with known names: the first two of {len(cells)} columns" if len(cells) > 2 else kind

    def check_languages(self) -> None:
        header, is_header = self._first_row()
        if is_header and len(header) > 2 and are_languages(header) and not pair_columns(header, self.languages):
            wanted = "source_language and target_language"
            raise _language_error(self.path, wanted, None, dict.fromkeys(header, 0))

    def _first_row(self) -> tuple[list[str], bool]:
        with open_unpacked(self.path) as file:
            return first_row(file, str(self.path), self.tabs, self.languages)

    def segments(self) -> Iterator[Segment]:
        with open_unpacked(self.path) as file:
            yield from read_table(file, str(self.path), self.tabs, self.languages)


@dataclass(frozen=True)
class TsvPairs(PairFormat):
    """A TSV file without a header, source TAB target."""

    @property
    def description(self) -> str:
        return "TSV"

    def segments(self) -> Iterator[Segment]:
        dropped = DroppedLines()
        for number, (source, target) in enumerate(read_tsv(self.path, dropped=dropped), 1):
            problem = next(iter(dropped), "")
            dropped.clear()
            yield Segment(TaggedText(source), TaggedText(target), number, problem, defect=bool(problem))


@dataclass(frozen=True)
class JsonLinesPairs(PairFormat):
    """A JSON Lines file."""

    @property
    def description(self) -> str:
        return "JSON Lines"

    def check_languages(self) -> None:
        with open_unpacked(self.path) as file:
            _check_fields(self.path, read_json_lines(file, self.languages))

    def segments(self) -> Iterator[Segment]:
        with open_unpacked(self.path) as file:
            yield from read_json_lines(file, self.languages)


@dataclass(frozen=True)
class ParquetPairs(PairFormat):
    """A Parquet file."""

    @property
    def description(self) -> str:
        return "Parquet"

    def check_languages(self) -> None:
        _check_fields(self.path, read_parquet(self.path, self.languages))

    def segments(self) -> Iterator[Segment]:
        yield from read_parquet(self.path, self.languages)


@dataclass(frozen=True)
class MosesPairs(PairFormat):
    """Two line-aligned files whose extensions are their languages."""

    target: Path = Path()

    @property
    def files(self) -> list[Path]:
        return [self.path, self.target]

    @property
    def description(self) -> str:
        return "line-aligned"

    def segments(self) -> Iterator[Segment]:
        dropped = DroppedLines()
        for number, (source, target) in enumerate(read_pairs(self.path, self.target, dropped), 1):
            problem = next(iter(dropped), "")
            dropped.clear()
            yield Segment(TaggedText(source), TaggedText(target), number, problem, defect=bool(problem))


def find_format(path: Path) -> str:
    """The format of a file by its content, or else by its extension; empty if it is none of pairs."""
    with open_bytes(path), open_unpacked(path) as file:  # the former refuses pipes and devices
        head = file.read(HEAD)
    if head.startswith(b"PAR1"):
        return "parquet"
    encoding = detect_encoding(head, path)
    text = head[len(encoding.bom) :].decode(encoding.name, "replace")
    if is_tmx(text) or is_xliff(text):
        return "tmx" if is_tmx(text) else "xliff"
    if text.lstrip().startswith("<?xml"):
        return "xml"
    by_name = EXTENSIONS.get(packed_stem(path).suffix.lower(), "")
    if (
        not by_name
        and re.search(r'^msgid\s+"', text, re.MULTILINE)
        and re.search(r'^msgstr(\[0\])?\s+"', text, re.MULTILINE)
    ):
        return "po"
    if not by_name and text.lstrip().startswith('{"'):
        return "jsonl"
    if not by_name and path.suffix.lower() == ".json" and text.lstrip().startswith("["):
        raise DataError(f"{path} is one JSON array; write one object per line (JSON Lines).")
    return by_name


def open_format(path: Path, languages: WantedLanguages) -> PairFormat:
    """A file of pairs in its format; what is not recognized is TSV."""
    match find_format(path):
        case "tmx":
            return TmxPairs.open(path, languages)
        case "xml":
            raise DataError(f"{path} is XML, but neither TMX nor XLIFF; convert it to one of them.")
        case "xliff":
            pair_format: PairFormat = XliffPairs(path, languages)
        case "po":
            pair_format = PoPairs(path, languages)
        case "csv":
            pair_format = TablePairs(path, languages)
        case "jsonl":
            pair_format = JsonLinesPairs(path, languages)
        case "parquet":
            pair_format = ParquetPairs(path, languages)
        case _:
            pair_format = (
                TablePairs(path, languages, tabs=True) if _has_header(path, languages) else TsvPairs(path, languages)
            )
    pair_format.check_languages()
    return pair_format


def _has_header(path: Path, languages: WantedLanguages) -> bool:
    """Whether a TSV file has a header with known names, or is in UTF-16, which only the table reader reads."""
    with open_unpacked(path) as file:
        head = file.read(HEAD)
    encoding = detect_encoding(head, path)
    first = head[len(encoding.bom) :].decode(encoding.name, "replace").partition("\n")[0]
    names = [cell.strip().lower() for cell in first.split("\t")]
    named = bool({"source", "target"} <= set(names) or languages.source or languages.target)
    if encoding.name.startswith("utf-16") or (named and pair_columns(names, languages) is not None):
        return True
    return pair_columns(names, languages) is None and pair_columns(names, languages, summaries=True) is not None


def _check_fields(path: Path, segments: Iterator[Segment]) -> None:
    """Refuse a file whose first objects all lack source and target."""
    first = list(islice(segments, CHECKED_OBJECTS))
    if first and all(segment.problem == NO_TEXT for segment in first):
        raise DataError(
            f"{path} has values of source and target that are not text ({first[0].source.text}); give strings."
        )
    if first and all(segment.problem == NO_PAIR for segment in first):
        raise DataError(
            f"{path} has no fields source and target, nor document and summary; it has {first[0].source.text}: choose"
            " languages with source_language and target_language, or rename fields."
        )


def _direction(source: str, target: str, wanted: WantedLanguages) -> str:
    """How a file in these languages (empty: unknown) is read: forward, reversed, or empty for not at all."""

    def fits(language: str | None, present: str) -> bool:
        return not language or not present or match_rank(language, present) is not None

    if fits(wanted.source, source) and fits(wanted.target, target):
        return "forward"
    known = (wanted.source and target) or (wanted.target and source)
    return "reversed" if known and fits(wanted.source, target) and fits(wanted.target, source) else ""


def _reversed(segment: Segment) -> Segment:
    if segment.target is None:
        return segment
    return Segment(segment.target, segment.source, segment.line, segment.problem, segment.defect)


def _language_error(path: Path, option: str, wanted: str | None, counts: Mapping[str, int]) -> DataError:
    if not counts:
        return DataError(f"{path} has no segments; give another file.")
    present = ", ".join((tag or "unnamed") + (f" ({count:,})" if count else "") for tag, count in counts.items())
    if wanted:
        return DataError(f"{path} has no segments in {wanted!r}; it has {present}: change {option}.")
    return DataError(f"{path} does not say which languages to read; it has {present}: choose with {option}.")
