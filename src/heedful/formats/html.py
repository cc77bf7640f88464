"""Translation of HTML: the text between tags is translated, and every tag moves with the words that it contains.

Each block (paragraph, list item, table cell) is translated by itself, sentence by sentence. Within a block, word
alignments place an inline tag around the translation of its words; it occurs exactly once, and nesting is kept.
Everything else is copied unchanged, except that line ends become line feeds. A WHATWG parser reads HTML as browsers do.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import turbohtml
from turbohtml import Token, TokenType

from heedful.errors import SettingError
from heedful.formats.segment import InlineTag, TaggedText
from heedful.formats.tag_placement import place_tags
from heedful.text.text_sentences import SentenceTranslations

INLINE = {
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "data", "del", "dfn", "em", "font", "i", "img", "ins",
    "label", "mark", "q", "s", "small", "span", "strike", "strong", "sub", "sup", "time", "tt", "u", "wbr",
}  # fmt: skip
FOREIGN = {"math", "svg"}  # only in these elements is <x/> self-closing
RAW = {"iframe", "noembed", "noframes", "noscript", "plaintext", "script", "style", "xmp"}  # text without markup
PRESERVED = FOREIGN | RAW | {"code", "kbd", "pre", "samp", "template", "textarea", "var"}
MAX_DEPTH = 200  # of nested inline elements
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


class BlockReader:
    """HTML tokens -> markup to copy and blocks to translate, in order."""

    def __init__(self) -> None:
        self.items: list[str | TaggedText] = []
        self.block: TaggedText | None = None  # the current block
        self.texts: list[str] = []  # parts of its text
        self.length = 0  # characters of its text
        self.open: list[tuple[str, InlineTag]] = []  # its unclosed inline elements
        self.preserved, self.depth = "", 0  # an element copied as a whole, and the nesting depth of its name
        self.position = 0  # where the current token starts
        self.spans: list[tuple[int, int]] = []  # of the blocks

    def add(self, token: Token, source: str) -> None:
        match token.type:
            case TokenType.START_TAG:
                self._start(token, source)
            case TokenType.END_TAG:
                self._end(token.tag or "", source)
            case TokenType.TEXT | TokenType.CHARACTER_REFERENCE if not self.preserved:
                self._begin_block()
                self.texts.append(token.data or "")
                self.length += len(self.texts[-1])
            case _:
                self.copy_markup(source)

    def copy_markup(self, source: str) -> None:
        """Copy markup that is not text; it ends the current block."""
        self.end_block()
        self.items.append(source)

    def end_block(self) -> None:
        """Finish the current block; unclosed inline elements end with it."""
        if self.block is not None:
            self.spans[-1] = self.spans[-1][0], self.position
            self.block.text = "".join(self.texts)
            for _, tag in self.open:
                tag.end, tag.closing = self.length, ""
        self.block, self.texts, self.length, self.open = None, [], 0, []

    def _begin_block(self) -> TaggedText:
        if self.block is None:
            self.block = TaggedText()
            self.spans.append((self.position, self.position))
            self.items.append(self.block)
        return self.block

    def _start(self, token: Token, source: str) -> None:
        name = token.tag or ""
        closed = name in VOID or (token.self_closing and bool(FOREIGN & {name, self.preserved}))
        if self.preserved:
            self.depth += name == self.preserved and not closed
            self.copy_markup(source)
        elif (name in PRESERVED or _protected(token)) and not closed:
            self.preserved, self.depth = name, 1
            self.copy_markup(source)
        elif name in INLINE:
            tag = InlineTag(source, "", self.length, self.length)
            (self.open[-1][1].inner if self.open else self._begin_block().tags).append(tag)
            if not closed:
                self.open.append((name, tag))
            if len(self.open) > MAX_DEPTH:
                raise SettingError(f"the HTML has more than {MAX_DEPTH} elements nested inside each other; close some.")
        else:
            self.copy_markup(source)

    def _end(self, name: str, source: str) -> None:
        if name == self.preserved:
            self.depth -= 1
            self.preserved = self.preserved if self.depth else ""
        elif not self.preserved and any(name == open_name for open_name, _ in self.open):
            closed = None
            while closed != name:
                closed, tag = self.open.pop()
                tag.end = self.length
            tag.closing = source  # the elements nested in it have no closing tag
            return
        self.copy_markup(source)


def _protected(token: Token) -> bool:
    """Whether the element is marked as not to be translated."""
    return token.attr("translate") == "no" or "notranslate" in (token.attr("class") or "").split()


def parse_blocks(text: str) -> list[str | TaggedText]:
    """Split HTML into markup to copy (str) and blocks to translate."""
    return read_blocks(unify_line_ends(text)).items


def unify_line_ends(text: str) -> str:
    """Line feeds for all line ends, as every HTML parser reads them."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_blocks(text: str) -> BlockReader:
    """The markup and the blocks of HTML whose lines end with line feeds."""
    lines = [0, *(match.end() for match in re.finditer("\n", text))]
    reader, position = BlockReader(), 0
    for token in turbohtml.tokenize(text, capture_source=True, resolve_references=False):
        start = lines[token.line - 1] + token.col
        reader.position = position
        if start > position:
            reader.copy_markup(text[position:start])  # "</>" yields no token
        reader.position = start
        position = start + len(token.data or "" if token.source is None else token.source)
        reader.add(token, text[start:position])
    reader.position = position
    if position < len(text):
        reader.copy_markup(text[position:])  # nor does an unterminated tag
    reader.end_block()
    return reader


def replace_blocks(text: str, translations: Sequence[SentenceTranslations], rank: int = 0) -> str:
    """HTML with its blocks replaced by their translations; refused if a browser would see different elements."""
    translated = iter(translations)
    written = "".join(
        item if isinstance(item, str) else write_block(item, next(translated), rank) for item in parse_blocks(text)
    )
    check_elements(text, written)
    return written


def check_elements(before: str, after: str) -> None:
    """An error if a browser sees other elements after the translation."""
    if any(count_elements(before, scripting) != count_elements(after, scripting) for scripting in (True, False)):
        raise SettingError(
            "the HTML cannot be translated without changing its elements; check that all elements are closed."
        )


def count_elements(markup: str, scripting: bool = True) -> Counter[Any]:
    """The elements and comments that a browser creates from the tags and comments of HTML, with their counts."""
    document = turbohtml.parse(markup, source_locations=True, scripting=scripting)
    return Counter(_nodes(document))


def _nodes(document: turbohtml.Document) -> Iterator[Any]:
    for node in document.descendants:
        if isinstance(node, turbohtml.Element):
            if node.source_location is not None:  # not created implicitly by the parser
                yield node.tag, tuple(sorted((name, str(value)) for name, value in node.attrs.items()))
        elif isinstance(node, turbohtml.Comment) or (isinstance(node, turbohtml.Text) and _raw(node)):
            yield type(node).__name__, node.data


def _raw(text: turbohtml.Text) -> bool:
    return isinstance(text.parent, turbohtml.Element) and text.parent.tag in RAW


def write_block(block: TaggedText, translation: SentenceTranslations, rank: int = 0) -> str:
    """The translation of a block, with its tags around the words that they belong to."""
    return place_tags(block, translation, rank).markup(escape)


def escape(text: str) -> str:
    """Escape `&`, `<` and `>`, in HTML as in XML."""
    return html.escape(text, quote=False)
