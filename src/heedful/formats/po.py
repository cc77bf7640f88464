"""PO and POT files of gettext: polib reads the entries, and translations replace the lines of their `msgstr`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import polib

from heedful.errors import DataError
from heedful.formats.document import Document, DocumentOptions, TargetText
from heedful.formats.encoded_text import EncodedText, Splice, line_offsets
from heedful.formats.language_tags import primary
from heedful.formats.segment import Segment, TaggedText

KEYWORD = re.compile(r"\s*(msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)\s*\"")
CONTINUATION = re.compile(r"\s*\"")
NO_TRANSLATION, FUZZY, OBSOLETE, INVALID = "no translation", "fuzzy", "obsolete", "not valid PO"
PLURAL_FORMS = {
    "nplurals=1; plural=0;": "id ja ka ko lo ms my th vi zh",
    "nplurals=2; plural=(n != 1);": "af az bg bn ca da de el en eo es et eu fi fy gl gu he hi hu hy is it kk kn ky lb"
    " ml mn mr nb ne nl nn no pa ps pt sq sv sw ta te ur",
    "nplurals=2; plural=(n > 1);": "am br fa fr ln mg oc tr uz wa",
    "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2);": "be bs hr"
    " ru sr uk",
    "nplurals=3; plural=(n==1) ? 0 : (n>=2 && n<=4) ? 1 : 2;": "cs sk",
    "nplurals=3; plural=(n==1 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2);": "pl",
    "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && (n%100<10 || n%100>=20) ? 1 : 2);": "lt",
    "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n != 0 ? 1 : 2);": "lv",
    "nplurals=3; plural=(n==1 ? 0 : (n==0 || (n%100 > 0 && n%100 < 20)) ? 1 : 2);": "ro",
    "nplurals=4; plural=(n%100==1 ? 0 : n%100==2 ? 1 : n%100==3 || n%100==4 ? 2 : 3);": "sl",
    "nplurals=6; plural=(n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && n%100<=10 ? 3 : n%100>=11 ? 4 : 5);": "ar",
}  # languages by their rule, as gettext's manual lists them


@dataclass
class PoEntry:
    """An entry as polib reads it, and the lines of its parts, numbered from 0."""

    entry: polib.POEntry
    first: int
    keyword: int  # its first line that is not a comment
    targets: tuple[int, int]  # its msgstr lines
    forms: int  # of the plural; 1 without

    @property
    def texts(self) -> list[str]:
        """What each form translates: the singular first, the plural for all others."""
        if not self.entry.msgid_plural:
            return [self.entry.msgid]
        singular = [self.entry.msgid] if self.forms > 1 else []
        return [*singular, *[self.entry.msgid_plural] * (self.forms - len(singular))]

    @property
    def translations(self) -> list[str]:
        if not self.entry.msgid_plural:
            return [self.entry.msgstr]
        return [self.entry.msgstr_plural.get(form, "") for form in range(self.forms)]


class PoDocument(Document):
    """A PO file whose entries get translations."""

    def __init__(self, content: EncodedText, options: DocumentOptions) -> None:
        super().__init__(content, options)
        self.lines = content.text.splitlines(keepends=True)  # where polib splits lines
        self.offsets = line_offsets(self.lines)
        self.newline = "\r\n" if self.lines and self.lines[0].endswith("\r\n") else "\n"
        parsed = parse_po(content.text, content.name)
        self.metadata = parsed.metadata
        plural = self.plural_forms()
        count = re.search(r"nplurals\s*=\s*(\d{1,2})\b", plural or "")
        self.forms = int(count[1]) if count and 0 < int(count[1]) < 10 else 2
        self.entries = [self._locate(entry) for entry in parsed if not entry.obsolete]
        self.places = [(entry, form) for entry in self.entries for form in range(len(entry.texts))]
        self.segments = [_segment(entry, form) for entry, form in self.places]
        self.obsolete = [entry for entry in parsed if entry.obsolete]

    @property
    def language(self) -> str:
        return str(self.metadata.get("Language", ""))

    def plural_forms(self) -> str | None:
        """The rule of the header, or else that of the target language, if it is known."""
        rule = str(self.metadata.get("Plural-Forms", ""))
        if rule and "INTEGER" not in rule:
            return rule
        language = primary(self.options.target_language or self.language)
        return next((rule for rule, languages in PLURAL_FORMS.items() if language in languages.split()), None)

    def _locate(self, entry: polib.POEntry) -> PoEntry:
        """Find the lines of an entry; polib knows the first one."""
        at = max(0, entry.linenum - 2)  # one line was added before the text
        keyword = next(n for n in range(at, len(self.lines)) if KEYWORD.match(self.lines[n]))
        start = next(n for n in range(keyword, len(self.lines)) if self.lines[n].lstrip().startswith("msgstr"))
        end = start + 1
        while end < len(self.lines) and (
            CONTINUATION.match(self.lines[end]) or self.lines[end].lstrip().startswith("msgstr[")
        ):
            end += 1
        return PoEntry(entry, at, keyword, (start, end), self.forms if entry.msgid_plural else 1)

    def splices(self, targets: Mapping[int, TargetText]) -> list[Splice]:
        changed: dict[int, tuple[PoEntry, list[str], bool]] = {}
        for number, target in targets.items():
            entry, form = self.places[number]
            _, texts, unsure = changed.get(entry.first, (entry, entry.translations, False))
            texts[form] = target.tagged.text
            unsure |= target.unsure or entry.forms > 2
            changed[entry.first] = entry, texts, unsure
        splices = [splice for change in changed.values() for splice in self._splices(*change)]
        return splices + self._header_splices()

    def _splices(self, entry: PoEntry, texts: list[str], unsure: bool) -> Iterator[Splice]:
        numbered = bool(entry.entry.msgid_plural)
        names = [f"msgstr[{form}]" if numbered else "msgstr" for form in range(len(texts))]
        written = "".join(self._lines(name, text) for name, text in zip(names, texts, strict=True))
        yield self._replace(*entry.targets, written)
        if unsure != entry.entry.fuzzy:
            yield from self._mark_fuzzy(entry.first, entry.keyword, unsure)

    def _mark_fuzzy(self, first: int, keyword: int, fuzzy: bool) -> Iterator[Splice]:
        """Set or remove the flag; without it, previous message ids (`#|`) are removed as well."""
        flags = [n for n in range(first, keyword) if self.lines[n].startswith("#,")]
        if fuzzy and flags:
            yield self._replace(flags[0], flags[0] + 1, f"#, fuzzy,{self.lines[flags[0]][2:]}")
        elif fuzzy:
            yield self._replace(keyword, keyword, f"#, fuzzy{self.newline}")
        else:
            for n in range(first, keyword):
                other_flags = [
                    flag for flag in self.lines[n][2:].strip().split(",") if flag.strip() not in ("fuzzy", "")
                ]
                if n in flags:
                    flag_line = (
                        f"#, {', '.join(flag.strip() for flag in other_flags)}{self.newline}" if other_flags else ""
                    )
                    yield self._replace(n, n + 1, flag_line)
                elif self.lines[n].startswith("#|"):
                    yield self._replace(n, n + 1, "")

    def _header_splices(self) -> list[Splice]:
        """Fields that are still those of a template."""
        header = next((n for n, line in enumerate(self.lines) if KEYWORD.match(line)), None)
        if header is None or not re.match(r'\s*msgid\s+""\s*$', self.lines[header]) or not self.metadata:
            return []
        splices = []
        end = header + 1
        while end < len(self.lines) and (
            self.lines[end].lstrip().startswith("msgstr") or CONTINUATION.match(self.lines[end])
        ):
            end += 1
        missing = {"Language": self.options.target_language, "Plural-Forms": self.plural_forms()}
        for n in range(header + 1, end):
            name, value = _header_field(self.lines[n])
            new = self._header_value(name, value, missing.pop(name, None))
            if name and new is not None and new != value:
                splices.append(self._replace(n, n + 1, f'"{name}: {new}\\n"{self.newline}'))
        added = "".join(
            f'"{name}: {value}\\n"{self.newline}'
            for name, value in missing.items()
            if value and (name == "Language" or any(entry.entry.msgid_plural for entry in self.entries))
        )
        if added:
            splices.append(self._replace(end, end, added))
        return splices + list(self._mark_fuzzy(0, header, False) if "fuzzy" in "".join(self.lines[:header]) else [])

    def _header_value(self, name: str, value: str, wanted: str | None) -> str | None:
        """The new value of a header field that a template leaves open."""
        if name == "Content-Type" and "CHARSET" in value:
            return value.replace("CHARSET", "UTF-8")
        if name == "PO-Revision-Date" and "YEAR" in value:
            return datetime.now(UTC).strftime("%Y-%m-%d %H:%M+0000")
        return wanted if not value or "INTEGER" in value else None

    def _lines(self, name: str, text: str) -> str:
        """`msgstr` with a text; one line of the file for each line of the text."""
        pieces = [piece for piece in re.split(r"(?<=\n)", text) if piece]
        if len(pieces) > 1:
            pieces = ["", *pieces]
        quoted = [f'"{polib.escape(piece)}"{self.newline}' for piece in pieces or [""]]
        return f"{name} {''.join(quoted)}"

    def _replace(self, first: int, last: int, text: str) -> Splice:
        return Splice(self.offsets[first], self.offsets[last], text)


def _segment(entry: PoEntry, form: int) -> Segment:
    text = entry.translations[form]
    problem = NO_TRANSLATION if not text else FUZZY if entry.entry.fuzzy else ""
    target = TaggedText(text) if text else None
    return Segment(TaggedText(entry.texts[form]), target, entry.keyword + 1, problem, preserve_space=True)


def _header_field(line: str) -> tuple[str, str]:
    match = re.match(r'\s*(?:msgstr\s+)?"([\w-]+):\s*(.*?)(?:\\n)?"\s*$', line)
    return (match[1], match[2]) if match else ("", "")


def parse_po(text: str, name: str) -> polib.POFile:
    """The entries of a PO file."""
    try:
        return polib.pofile(f"\n{text}")  # with a line feed, no text is taken for the path of a file
    except OSError as error:
        line = re.search(r"\(line (\d+)\)", str(error))
        where = f"line {int(line[1]) - 1} of " if line else ""
        raise DataError(f"{where}{name} is not valid PO; correct it, `msgfmt -c` shows what is wrong.") from None


def read_po(content: EncodedText) -> Iterator[Segment]:
    """The segments of a PO file for a corpus: plural entries once for each number of texts that they have.

    If the file is not valid, its valid entries are read.
    """
    try:
        documents = [(0, PoDocument(content, DocumentOptions()))]
    except DataError:
        documents = []
        for line, block in _blocks(content.text):
            try:
                piece = EncodedText(block.encode("utf-8"), content.encoding, content.name)
                documents.append((line, PoDocument(piece, DocumentOptions())))
            except (DataError, StopIteration):
                yield Segment(TaggedText(block), None, line + 1, INVALID, defect=True)
    for line, document in documents:
        yield from _corpus_segments(document, line)


def _corpus_segments(document: PoDocument, line: int) -> Iterable[Segment]:
    for (entry, form), segment in zip(document.places, document.segments, strict=True):
        if 0 < form < len(entry.texts) - 1:
            continue  # between the singular and the last plural form
        yield Segment(segment.source, segment.target, line + segment.line, segment.problem)
    for entry in document.obsolete:
        yield Segment(TaggedText(entry.msgid), None, line + max(1, entry.linenum - 1), OBSOLETE)


def _blocks(text: str) -> Iterator[tuple[int, str]]:
    """Paragraphs, with the number of the line before each."""
    block: list[str] = []
    lines = text.splitlines(keepends=True)
    for number, line in enumerate([*lines, ""]):
        if line.strip():
            block.append(line)
        elif block:
            yield number - len(block), "".join(block)
            block = []
