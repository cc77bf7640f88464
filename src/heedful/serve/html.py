"""HTML in, HTML out: the text between tags is translated, and every tag stays with the words that it stood around.

Blocks (paragraphs, list items, cells) are translated each by itself, sentence by sentence. Within a block a tag goes to
the words that are aligned with those it held; it comes exactly once, and what was nested stays nested.
"""

from __future__ import annotations

import asyncio
import html
import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

from starlette.requests import Request

from heedful.serve.engine import Engine
from heedful.serve.problems import ProblemError
from heedful.serve.state import State, Translated
from heedful.text import words_at

INLINE = {
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "data", "del", "dfn", "em", "font", "i", "img", "ins",
    "label", "mark", "q", "s", "small", "span", "strike", "strong", "sub", "sup", "time", "tt", "u", "wbr",
}  # fmt: skip
KEPT = {
    "code", "kbd", "math", "noscript", "pre", "samp", "script", "style", "svg", "template", "textarea", "var",
}  # fmt: skip
DEEPEST = 200  # elements within each other
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
WORD = re.compile(r"\S+")
Span = tuple[int, int]


@dataclass
class Tag:
    """An inline element: what opens and closes it, and the characters of its block that it holds."""

    opening: str
    closing: str
    start: int
    end: int
    inner: list[Tag] = field(default_factory=list)


@dataclass
class Block:
    """Text without tags, and the inline elements over it."""

    text: str = ""
    tags: list[Tag] = field(default_factory=list)


class Reader(HTMLParser):
    """HTML -> what is kept as it stands, and blocks to translate, in order."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.items: list[str | Block] = []
        self.open: list[tuple[str, Tag]] = []  # inline elements of the block that is being read
        self.kept: list[str] = []  # elements that nothing in is translated of

    def block(self) -> Block:
        if not self.items or isinstance(self.items[-1], str):
            self.items.append(Block())
            self.open = []
        last = self.items[-1]
        assert isinstance(last, Block)
        return last

    def keep(self, text: str) -> None:
        """A border between blocks, or what is no text: it stays as it is."""
        self.close_all()
        if self.items and isinstance(self.items[-1], str):
            self.items[-1] += text
        else:
            self.items.append(text)

    def close_all(self) -> None:
        """Elements that a border cuts off end before it, in the text as in a browser's eyes."""
        if self.items and isinstance(self.items[-1], Block):
            for _, tag in self.open:
                tag.end, tag.closing = len(self.items[-1].text), ""
        self.open = []

    def add(self, name: str, tag: Tag, void: bool) -> None:
        (self.open[-1][1].inner if self.open else self.block().tags).append(tag)
        if not void:
            self.open.append((name, tag))
        if len(self.open) > DEEPEST:
            raise ProblemError(422, f"the HTML has more than {DEEPEST} elements within each other; close some.")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        raw = self.get_starttag_text() or f"<{tag}>"
        values = dict(attrs)
        protected = values.get("translate") == "no" or "notranslate" in (values.get("class") or "").split()
        if self.kept or ((tag in KEPT or protected) and tag not in VOID):
            if tag not in VOID:
                self.kept.append(tag)
            self.keep(raw)
        elif tag in INLINE:
            at = len(self.block().text)
            self.add(tag, Tag(raw, f"</{tag}>", at, at), tag in VOID)
            if tag in VOID:
                self._last().closing = ""
        else:
            self.keep(raw)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        raw = self.get_starttag_text() or f"<{tag}/>"
        if self.kept or tag not in INLINE:
            self.keep(raw)
        else:
            at = len(self.block().text)
            self.add(tag, Tag(raw, "", at, at), True)

    def handle_endtag(self, tag: str) -> None:
        raw = f"</{tag}>"
        if self.kept:
            if tag in self.kept:
                while self.kept.pop() != tag:
                    pass
            self.keep(raw)
            return
        if tag in INLINE and any(name == tag for name, _ in self.open):
            while True:
                name, closed = self.open.pop()
                closed.end = len(self.block().text)
                if name == tag:
                    return
                closed.closing = ""  # it was never closed
        self.keep(raw)

    def handle_data(self, data: str) -> None:
        if self.kept:
            self.keep(data if self.kept[-1] in ("script", "style") else html.escape(data, quote=False))
        else:
            self.block().text += data

    def handle_comment(self, data: str) -> None:
        self.keep(f"<!--{data}-->")

    def handle_decl(self, decl: str) -> None:
        self.keep(f"<!{decl}>")

    def handle_pi(self, data: str) -> None:
        self.keep(f"<?{data}>")

    def unknown_decl(self, data: str) -> None:
        self.keep(f"<![{data}]]>")

    def parse_marked_section(self, i: int, report: bool = True) -> int:
        """Kept as they stand; the library fails at those that it does not know, and they are comments."""
        try:
            end = super().parse_marked_section(i, False)
        except AssertionError:
            return self.parse_bogus_comment(i)
        if end >= 0:
            self.keep(self.rawdata[i:end])
        return end

    def _last(self) -> Tag:
        return (self.open[-1][1].inner if self.open else self.block().tags)[-1]


def read(text: str) -> list[str | Block]:
    """What an HTML text consists of."""
    reader = Reader()
    reader.feed(text)
    reader.close()
    if reader.rawdata:  # of an element such as script that never ends
        reader.keep(reader.rawdata)
    reader.close_all()
    return reader.items


async def translate_html(
    state: State, request: Request, engine: Engine, text: str, search: dict[str, Any]
) -> list[str]:
    """A text and its alternatives, best first; a long one must not hold up the others."""
    items = await asyncio.to_thread(read, text)
    blocks = [item for item in items if isinstance(item, Block)]
    found = await state.translate(
        request,
        engine,
        [_plain(block.text) for block in blocks],
        search.get("n_best"),
        ("text", "alignment"),
        search=search,
        alignments=engine.card.get("aligns") and any(block.tags for block in blocks),
    )
    done = dict(zip(map(id, blocks), found, strict=True))

    def whole(rank: int) -> str:
        return "".join(item if isinstance(item, str) else write(item, done[id(item)], rank) for item in items)

    return [await asyncio.to_thread(whole, rank) for rank in range(search.get("n_best", 1))]


def _framed(text: str, target: str) -> str:
    """The translation between the white space that stood around the text, line breaks and all."""
    if not text.strip():
        return text
    return text[: len(text) - len(text.lstrip())] + target.strip() + text[len(text.rstrip()) :]


def _plain(text: str) -> str:
    """In HTML a line break within a text is a space."""
    return re.sub(r"[\n\r\t\f]", " ", text)


def write(block: Block, found: Translated, rank: int = 0) -> str:
    """A block with its translation in place of its text, and its tags around the words they belong to."""
    target = _framed(block.text, found.whole(rank))
    words = _words(target)
    frame = Frame(target, _words(_plain(block.text)), words, origins(found, rank, len(words)))
    return frame.write(block.tags, (0, len(target)), (0, len(words)))


def origins(found: Translated, rank: int, words: int) -> list[int | None]:
    """For every word of the translation the word of the text that it comes from; its neighbour's if none is known.

    Of a model that aligns nothing, words are taken to stand in the same order.
    """
    origin: list[int | None] = [None] * words
    whole, starts = found.rebuilt(rank)
    at_sources = words_at(found.text, [sentence.start for sentence in found.sentences])
    at_targets = words_at(whole, starts)
    for sentence, ways, at_source, at_target in zip(found.sentences, found.ways, at_sources, at_targets, strict=True):
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


class Frame:
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

    def write(self, tags: Sequence[Tag], characters: Span, words: Span) -> str:
        """The translation between two places, with these elements in it."""
        placed = [(self.place(tag, characters, words), tag) for tag in tags]
        out, at = "", characters[0]
        for ((start, end), inner), tag in sorted(placed, key=lambda each: each[0]):
            begin = min(max(start, at), characters[1])
            finish = max(begin, min(end, characters[1]))
            out += _escaped(self.target[at:begin]) + tag.opening
            out += self.write(tag.inner, (begin, finish), inner) + tag.closing
            at = finish
        return out + _escaped(self.target[at : characters[1]])

    def place(self, tag: Tag, characters: Span, words: Span) -> tuple[Span, Span]:
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
            start += _no_word(inside)
        if tag.end < self.ends[held[-1]]:  # and so does a full stop behind it
            end -= _no_word(inside[::-1])
        return (max(start, characters[0]), min(max(start, end), characters[1])), (first, last)

    def _held(self, tag: Tag) -> range:
        """The words of the text that an element holds more than half of."""
        first, last = bisect_right(self.ends, tag.start), bisect_left(self.starts, tag.end)
        while first < last and not _holds(tag, self.source_words[first]):
            first += 1
        while first < last and not _holds(tag, self.source_words[last - 1]):
            last -= 1
        return range(first, last)

    def _became(self, held: range, words: Span) -> list[int]:
        """Words of the translation between two places that come from words of the text, in order."""
        return sorted(word for source in held for word in self.became[source] if words[0] <= word < words[1])

    def _before(self, tag: Tag, characters: Span, words: Span) -> tuple[Span, Span]:
        """An element without words stays before the word that it stood before."""
        following = bisect_left(self.starts, tag.start)
        became = self._became(range(following, min(following + 1, len(self.starts))), words)
        at = max(self.target_words[became[0]][0], characters[0]) if became else characters[1]
        return (at, at), (words[1], words[1])


def _words(text: str) -> list[Span]:
    return [match.span() for match in WORD.finditer(text)]


def _holds(tag: Tag, word: Span) -> bool:
    return min(word[1], tag.end) - max(word[0], tag.start) > (word[1] - word[0]) / 2


def _no_word(text: str) -> int:
    """Characters before the first of a word."""
    found = re.search(r"\w", text)
    return found.start() if found else len(text)


def _escaped(text: str) -> str:
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
