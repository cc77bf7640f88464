"""Translation of HTML: the text between tags is translated, and every tag moves with the words that it contains.

Each block (paragraph, list item, table cell) is translated by itself, sentence by sentence. Within a block, word
alignments place an inline tag around the translation of its words; it occurs exactly once, and nesting is kept.
Everything else is copied unchanged, except that line ends become line feeds. A WHATWG parser reads HTML as browsers do.
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
FOREIGN = {"math", "svg"}  # only in these elements is <x/> self-closing
RAW = {"iframe", "noembed", "noframes", "noscript", "plaintext", "script", "style", "xmp"}  # text without markup
PRESERVED = FOREIGN | RAW | {"code", "kbd", "pre", "samp", "template", "textarea", "var"}
MAX_DEPTH = 200  # of nested inline elements
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
WORD = re.compile(r"\S+")
Span = tuple[int, int]


@dataclass
class InlineTag:
    """An inline element: its opening and closing tag, and its character span in the text of its block."""

    opening: str
    closing: str
    start: int
    end: int
    inner: list[InlineTag] = field(default_factory=list)


@dataclass
class HtmlBlock:
    """The text of a block without tags, and its inline elements."""

    text: str = ""
    tags: list[InlineTag] = field(default_factory=list)


class BlockReader:
    """HTML tokens -> markup to copy and blocks to translate, in order."""

    def __init__(self) -> None:
        self.items: list[str | HtmlBlock] = []
        self.block: HtmlBlock | None = None  # the current block
        self.texts: list[str] = []  # parts of its text
        self.length = 0  # characters of its text
        self.open: list[tuple[str, InlineTag]] = []  # its unclosed inline elements
        self.preserved, self.depth = "", 0  # an element copied as a whole, and the nesting depth of its name

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
            self.block.text = "".join(self.texts)
            for _, tag in self.open:
                tag.end, tag.closing = self.length, ""
        self.block, self.texts, self.length, self.open = None, [], 0, []

    def _begin_block(self) -> HtmlBlock:
        if self.block is None:
            self.block = HtmlBlock()
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


def parse_blocks(text: str) -> list[str | HtmlBlock]:
    """Split HTML into markup to copy (str) and blocks to translate."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")  # as every HTML parser does
    lines = [0, *(match.end() for match in re.finditer("\n", text))]
    reader, position = BlockReader(), 0
    for token in turbohtml.tokenize(text, capture_source=True, resolve_references=False):
        start = lines[token.line - 1] + token.col
        if start > position:
            reader.copy_markup(text[position:start])  # "</>" yields no token
        position = start + len(token.data or "" if token.source is None else token.source)
        reader.add(token, text[start:position])
    if position < len(text):
        reader.copy_markup(text[position:])  # nor does an unterminated tag
    reader.end_block()
    return reader.items


def replace_blocks(text: str, translations: Sequence[SentenceTranslations], rank: int = 0) -> str:
    """HTML with its blocks replaced by their translations; refused if a browser would see different elements."""
    translated = iter(translations)
    written = "".join(
        item if isinstance(item, str) else write_block(item, next(translated), rank) for item in parse_blocks(text)
    )
    if any(count_elements(text, scripting) != count_elements(written, scripting) for scripting in (True, False)):
        raise SettingError(
            "the HTML cannot be translated without changing its elements; check that all elements are closed."
        )
    return written


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


def _restore_margins(text: str, target: str) -> str:
    """The translation with the leading and trailing white space of the text."""
    if not text.strip():
        return text
    return text[: len(text) - len(text.lstrip())] + target.strip() + text[len(text.rstrip()) :]


def line_breaks_to_spaces(text: str) -> str:
    """HTML renders line breaks in text as spaces."""
    return re.sub(r"[\n\r\t\f]", " ", text)


def write_block(block: HtmlBlock, translation: SentenceTranslations, rank: int = 0) -> str:
    """The translation of a block, with its tags around the words that they belong to."""
    target = _restore_margins(block.text, translation.translation(rank))
    words = _word_spans(target)
    frame = TagPlacer(
        target, _word_spans(line_breaks_to_spaces(block.text)), words, source_of_words(translation, rank, len(words))
    )
    return frame.write(block.tags, (0, len(target)), (0, len(words)))


def source_of_words(translation: SentenceTranslations, rank: int, words: int) -> list[int | None]:
    """For every word of the translation the index of its aligned source word, or that of the word before it.

    Without alignments, source and translation are taken to have the same word order.
    """
    origin: list[int | None] = [None] * words
    whole, starts = translation.translation_with_starts(rank)
    at_sources = words_at(translation.text, [sentence.start for sentence in translation.sentences])
    at_targets = words_at(whole, starts)
    sentences = zip(translation.sentences, translation.n_best, at_sources, at_targets, strict=True)
    for sentence, n_best, at_source, at_target in sentences:
        best: dict[str, Any] = n_best[min(rank, len(n_best) - 1)] if n_best else {"text": "", "alignment": []}
        source_length, target_length = len(sentence.text.split()), len(best["text"].split())
        links = best["alignment"]
        for source, target in (
            ((n * source_length // target_length, n) for n in range(target_length)) if links is None else links
        ):
            if at_target + target < words and origin[at_target + target] is None:
                origin[at_target + target] = at_source + source
    for index in range(1, words):
        if origin[index] is None:
            origin[index] = origin[index - 1]
    return origin


class TagPlacer:
    """Places inline tags in the translation of a block, by the word spans of both sides and their alignment."""

    def __init__(
        self, target: str, source_words: list[Span], target_words: list[Span], origin: Sequence[int | None]
    ) -> None:
        self.target, self.source_words, self.target_words = target, source_words, target_words
        self.starts, self.ends = [start for start, _ in source_words], [end for _, end in source_words]
        self.aligned: list[list[int]] = [[] for _ in source_words]  # source word -> words of the translation
        for word, source in enumerate(origin):
            if source is not None and source < len(source_words):
                self.aligned[source].append(word)

    def write(self, tags: Sequence[InlineTag], characters: Span, words: Span) -> str:
        """The translation within a character span, with these elements in it."""
        placed = [(self.place(tag, characters, words), tag) for tag in tags]
        out, at = "", characters[0]
        for ((start, end), inner), tag in sorted(placed, key=lambda place: place[0]):
            begin = min(max(start, at), characters[1])
            finish = max(begin, min(end, characters[1]))
            out += _escape(self.target[at:begin]) + tag.opening
            out += self.write(tag.inner, (begin, finish), inner) + tag.closing
            at = finish
        return out + _escape(self.target[at : characters[1]])

    def place(self, tag: InlineTag, characters: Span, words: Span) -> tuple[Span, Span]:
        """Character and word span of an element in the translation: the longest run of words aligned with its own."""
        held = self._held(tag)
        if not held:
            return self._before(tag, characters, words)
        if len(held) == len(self.source_words):
            return characters, words
        first, last = _longest_run(self._aligned_words(held, words))
        if first == last:
            return (characters[1],) * 2, (words[1],) * 2
        start, end = self.target_words[first][0], self.target_words[last - 1][1]
        inside = self.target[start:end]
        if tag.start > self.starts[held[0]]:  # a quotation mark or bracket before the element stays outside
            start += _count_leading_marks(inside)
        if tag.end < self.ends[held[-1]]:  # and so does a full stop after it
            end -= _count_leading_marks(inside[::-1])
        return (max(start, characters[0]), min(max(start, end), characters[1])), (first, last)

    def _held(self, tag: InlineTag) -> range:
        """The source words of which an element contains more than half."""
        first, last = bisect_right(self.ends, tag.start), bisect_left(self.starts, tag.end)
        while first < last and not _holds_most(tag, self.source_words[first]):
            first += 1
        while first < last and not _holds_most(tag, self.source_words[last - 1]):
            last -= 1
        return range(first, last)

    def _aligned_words(self, held: range, words: Span) -> list[int]:
        """Words of the translation within a span that are aligned with these source words, in order."""
        return sorted(word for source in held for word in self.aligned[source] if words[0] <= word < words[1])

    def _before(self, tag: InlineTag, characters: Span, words: Span) -> tuple[Span, Span]:
        """Place an element without words before the translation of the word that follows it."""
        following = bisect_left(self.starts, tag.start)
        aligned = self._aligned_words(range(following, min(following + 1, len(self.starts))), words)
        at = max(self.target_words[aligned[0]][0], characters[0]) if aligned else characters[1]
        return (at, at), (words[1], words[1])


def _word_spans(text: str) -> list[Span]:
    return [match.span() for match in WORD.finditer(text)]


def _holds_most(tag: InlineTag, word: Span) -> bool:
    return min(word[1], tag.end) - max(word[0], tag.start) > (word[1] - word[0]) / 2


def _count_leading_marks(text: str) -> int:
    """Number of characters before the first word character."""
    match = re.search(r"\w", text)
    return match.start() if match else len(text)


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
