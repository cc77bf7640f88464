"""HTML in, HTML out: the text between tags is translated, and every tag stays with the words that it stood around.

Blocks (paragraphs, list items, cells) are translated each by itself, sentence by sentence. Within a block a tag goes to
the words that are aligned with those it held; it comes exactly once, and what was nested stays nested. Everything else
stays as it was written, except that lines end with a line feed. A WHATWG parser reads the HTML as browsers do.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import turbohtml
from turbohtml import Token, TokenType

from heedful.errors import SettingError
from heedful.serve.text_sentences import SentenceTranslations
from heedful.text import words_at

INLINE = {
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "data", "del", "dfn", "em", "font", "i", "img", "ins",
    "label", "mark", "q", "s", "small", "span", "strike", "strong", "sub", "sup", "time", "tt", "u", "wbr",
}  # fmt: skip
FOREIGN = {"math", "svg"}  # only in these does <x/> close an element
RAW = {"iframe", "noembed", "noframes", "noscript", "plaintext", "script", "style", "xmp"}  # no references, no tags
PRESERVED = FOREIGN | RAW | {"code", "kbd", "pre", "samp", "template", "textarea", "var"}
MAX_DEPTH = 200  # elements within each other
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
WORD = re.compile(r"\S+")
Span = tuple[int, int]


@dataclass
class InlineTag:
    """An inline element: what opens and closes it, and the characters of its block that it holds."""

    opening: str
    closing: str
    start: int
    end: int
    inner: list[InlineTag] = field(default_factory=list)


@dataclass
class HtmlBlock:
    """Text without tags, and the inline elements over it."""

    text: str = ""
    tags: list[InlineTag] = field(default_factory=list)


class BlockReader:
    """Tokens of HTML -> what is kept as it stands, and blocks to translate, in order."""

    def __init__(self) -> None:
        self.items: list[str | HtmlBlock] = []
        self.block: HtmlBlock | None = None  # the one that is being read
        self.pieces: list[str] = []  # of its text
        self.length = 0  # of its text
        self.open: list[tuple[str, InlineTag]] = []  # its inline elements
        self.kept, self.depth = "", 0  # an element that is kept as a whole, and how many of its name are open

    def take(self, token: Token, source: str) -> None:
        match token.type:
            case TokenType.START_TAG:
                self._start(token, source)
            case TokenType.END_TAG:
                self._end(token.tag or "", source)
            case TokenType.TEXT | TokenType.CHARACTER_REFERENCE if not self.kept:
                self._begin_block()
                self.pieces.append(token.data or "")
                self.length += len(self.pieces[-1])
            case _:
                self.keep(source)

    def keep(self, source: str) -> None:
        """A border between blocks, or what is no text: it stays as it is."""
        self.end_block()
        self.items.append(source)

    def end_block(self) -> None:
        """Elements that a border cuts off end before it."""
        if self.block is not None:
            self.block.text = "".join(self.pieces)
            for _, tag in self.open:
                tag.end, tag.closing = self.length, ""
        self.block, self.pieces, self.length, self.open = None, [], 0, []

    def _begin_block(self) -> HtmlBlock:
        if self.block is None:
            self.block = HtmlBlock()
            self.items.append(self.block)
        return self.block

    def _start(self, token: Token, source: str) -> None:
        name = token.tag or ""
        closed = name in VOID or (token.self_closing and bool(FOREIGN & {name, self.kept}))
        if self.kept:
            self.depth += name == self.kept and not closed
            self.keep(source)
        elif (name in PRESERVED or _protected(token)) and not closed:
            self.kept, self.depth = name, 1
            self.keep(source)
        elif name in INLINE:
            tag = InlineTag(source, "", self.length, self.length)
            (self.open[-1][1].inner if self.open else self._begin_block().tags).append(tag)
            if not closed:
                self.open.append((name, tag))
            if len(self.open) > MAX_DEPTH:
                raise SettingError(f"the HTML has more than {MAX_DEPTH} elements within each other; close some.")
        else:
            self.keep(source)

    def _end(self, name: str, source: str) -> None:
        if name == self.kept:
            self.depth -= 1
            self.kept = self.kept if self.depth else ""
        elif not self.kept and any(name == each for each, _ in self.open):
            closed = None
            while closed != name:
                closed, tag = self.open.pop()
                tag.end = self.length
            tag.closing = source  # those within it were never closed
            return
        self.keep(source)


def _protected(token: Token) -> bool:
    """Whether its author wants it to stay as it is."""
    return token.attr("translate") == "no" or "notranslate" in (token.attr("class") or "").split()


def parse_blocks(text: str) -> list[str | HtmlBlock]:
    """What an HTML text consists of."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")  # as every HTML parser does first
    lines = [0, *(match.end() for match in re.finditer("\n", text))]
    reader, at = BlockReader(), 0
    for token in turbohtml.tokenize(text, capture_source=True, resolve_references=False):
        start = lines[token.line - 1] + token.col
        if start > at:
            reader.keep(text[at:start])  # "</>" is no token
        at = start + len(token.data or "" if token.source is None else token.source)
        reader.take(token, text[start:at])
    if at < len(text):
        reader.keep(text[at:])  # neither is a tag that never ends
    reader.end_block()
    return reader.items


def replace_blocks(text: str, found: Sequence[SentenceTranslations], rank: int = 0) -> str:
    """An HTML text with the translations of its blocks; refused if a browser would see other elements in it."""
    translated = iter(found)
    written = "".join(
        each if isinstance(each, str) else write_block(each, next(translated), rank) for each in parse_blocks(text)
    )
    if any(count_elements(text, scripting) != count_elements(written, scripting) for scripting in (True, False)):
        raise SettingError(
            "the HTML cannot be translated without changing its elements; check that all of it is closed."
        )
    return written


def count_elements(markup: str, scripting: bool = True) -> Counter[Any]:
    """The elements and comments that a browser makes of the tags and comments of HTML, in any order."""
    document = turbohtml.parse(markup, source_locations=True, scripting=scripting)
    return Counter(_nodes(document))


def _nodes(document: turbohtml.Document) -> Iterator[Any]:
    for node in document.descendants:
        if isinstance(node, turbohtml.Element):
            if node.source_location is not None:  # neither implied nor a copy
                yield node.tag, tuple(sorted((name, str(value)) for name, value in node.attrs.items()))
        elif isinstance(node, turbohtml.Comment) or (isinstance(node, turbohtml.Text) and _raw(node)):
            yield type(node).__name__, node.data


def _raw(text: turbohtml.Text) -> bool:
    return isinstance(text.parent, turbohtml.Element) and text.parent.tag in RAW


def _restore_margins(text: str, target: str) -> str:
    """The translation between the white space that stood around the text, line breaks and all."""
    if not text.strip():
        return text
    return text[: len(text) - len(text.lstrip())] + target.strip() + text[len(text.rstrip()) :]


def line_breaks_to_spaces(text: str) -> str:
    """In HTML a line break within a text is a space."""
    return re.sub(r"[\n\r\t\f]", " ", text)


def write_block(block: HtmlBlock, found: SentenceTranslations, rank: int = 0) -> str:
    """A block with its translation in place of its text, and its tags around the words they belong to."""
    target = _restore_margins(block.text, found.translation(rank))
    words = _word_spans(target)
    frame = TagPlacer(
        target, _word_spans(line_breaks_to_spaces(block.text)), words, source_of_words(found, rank, len(words))
    )
    return frame.write(block.tags, (0, len(target)), (0, len(words)))


def source_of_words(found: SentenceTranslations, rank: int, words: int) -> list[int | None]:
    """For every word of the translation the word of the text that it comes from; its neighbour's if none is known.

    Of a model that aligns nothing, words are taken to stand in the same order.
    """
    origin: list[int | None] = [None] * words
    whole, starts = found.translation_with_starts(rank)
    at_sources = words_at(found.text, [sentence.start for sentence in found.sentences])
    at_targets = words_at(whole, starts)
    for sentence, ways, at_source, at_target in zip(found.sentences, found.n_best, at_sources, at_targets, strict=True):
        way: dict[str, Any] = ways[min(rank, len(ways) - 1)] if ways else {"text": "", "alignment": []}
        long, wide = len(sentence.text.split()), len(way["text"].split())
        links = way["alignment"]
        for source, target in ((n * long // wide, n) for n in range(wide)) if links is None else links:
            if at_target + target < words and origin[at_target + target] is None:
                origin[at_target + target] = at_source + source
    for index in range(1, words):
        if origin[index] is None:
            origin[index] = origin[index - 1]
    return origin


class TagPlacer:
    """The translation of a block: where the words of both sides stand, and which comes from which."""

    def __init__(
        self, target: str, source_words: list[Span], target_words: list[Span], origin: Sequence[int | None]
    ) -> None:
        self.target, self.source_words, self.target_words = target, source_words, target_words
        self.starts, self.ends = [start for start, _ in source_words], [end for _, end in source_words]
        self.became: list[list[int]] = [[] for _ in source_words]  # the words of the translation from each of the text
        for word, source in enumerate(origin):
            if source is not None and source < len(source_words):
                self.became[source].append(word)

    def write(self, tags: Sequence[InlineTag], characters: Span, words: Span) -> str:
        """The translation between two places, with these elements in it."""
        placed = [(self.place(tag, characters, words), tag) for tag in tags]
        out, at = "", characters[0]
        for ((start, end), inner), tag in sorted(placed, key=lambda each: each[0]):
            begin = min(max(start, at), characters[1])
            finish = max(begin, min(end, characters[1]))
            out += _escape(self.target[at:begin]) + tag.opening
            out += self.write(tag.inner, (begin, finish), inner) + tag.closing
            at = finish
        return out + _escape(self.target[at : characters[1]])

    def place(self, tag: InlineTag, characters: Span, words: Span) -> tuple[Span, Span]:
        """Characters and words of the translation that an element goes around: most of the words that it held."""
        held = self._held(tag)
        if not held:
            return self._before(tag, characters, words)
        if len(held) == len(self.source_words):
            return characters, words
        first, last = _longest_run(self._became(held, words))
        if first == last:
            return (characters[1],) * 2, (words[1],) * 2
        start, end = self.target_words[first][0], self.target_words[last - 1][1]
        inside = self.target[start:end]
        if tag.start > self.starts[held[0]]:  # a quotation mark or a bracket before it stays outside
            start += _count_leading_marks(inside)
        if tag.end < self.ends[held[-1]]:  # and so does a full stop behind it
            end -= _count_leading_marks(inside[::-1])
        return (max(start, characters[0]), min(max(start, end), characters[1])), (first, last)

    def _held(self, tag: InlineTag) -> range:
        """The words of the text that an element holds more than half of."""
        first, last = bisect_right(self.ends, tag.start), bisect_left(self.starts, tag.end)
        while first < last and not _holds_most(tag, self.source_words[first]):
            first += 1
        while first < last and not _holds_most(tag, self.source_words[last - 1]):
            last -= 1
        return range(first, last)

    def _became(self, held: range, words: Span) -> list[int]:
        """Words of the translation between two places that come from words of the text, in order."""
        return sorted(word for source in held for word in self.became[source] if words[0] <= word < words[1])

    def _before(self, tag: InlineTag, characters: Span, words: Span) -> tuple[Span, Span]:
        """An element without words stays before the word that it stood before."""
        following = bisect_left(self.starts, tag.start)
        became = self._became(range(following, min(following + 1, len(self.starts))), words)
        at = max(self.target_words[became[0]][0], characters[0]) if became else characters[1]
        return (at, at), (words[1], words[1])


def _word_spans(text: str) -> list[Span]:
    return [match.span() for match in WORD.finditer(text)]


def _holds_most(tag: InlineTag, word: Span) -> bool:
    return min(word[1], tag.end) - max(word[0], tag.start) > (word[1] - word[0]) / 2


def _count_leading_marks(text: str) -> int:
    """Characters before the first of a word."""
    found = re.search(r"\w", text)
    return found.start() if found else len(text)


def _escape(text: str) -> str:
    return html.escape(text, quote=False)


def _longest_run(words: list[int]) -> tuple[int, int]:
    """[2, 3, 4, 7] -> (2, 5)."""
    best = (0, 0)
    start = None
    for index, word in enumerate(words):
        if start is None or word != words[index - 1] + 1:
            start = word
        if word + 1 - start > best[1] - best[0]:
            best = (start, word + 1)
    return best
