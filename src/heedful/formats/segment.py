"""Segments of files to translate: text without markup, and the inline tags in it.

Every format reads its segments as `TaggedText` and writes translations from it. The text is what a translator sees; the
tags are copied verbatim. Knows no file format.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

LINE_BREAK = re.compile(r"""ctype=["']lb["']|subType=["']xlf:lb["']|>\\[nt]<|&lt;br\b""")


@dataclass
class InlineTag:
    """An inline element or code: its opening and closing markup, and its character span in the text.

    An isolated code (`<x/>`, `<ph>…</ph>`) has no closing markup and an empty span.
    """

    opening: str
    closing: str
    start: int
    end: int
    inner: list[InlineTag] = field(default_factory=list)


@dataclass
class TaggedText:
    """Text without markup, and its inline tags in order; nested tags are within the spans of their parents."""

    text: str = ""
    tags: list[InlineTag] = field(default_factory=list)

    def markup(self, escape: Callable[[str], str]) -> str:
        """The text with its tags; `escape` converts text to the syntax of the format."""
        return self._markup(self.tags, 0, len(self.text), escape)

    def _markup(self, tags: Sequence[InlineTag], start: int, end: int, escape: Callable[[str], str]) -> str:
        parts = []
        for tag in tags:
            parts += [escape(self.text[start : tag.start]), tag.opening]
            parts += [self._markup(tag.inner, tag.start, tag.end, escape), tag.closing]
            start = tag.end
        return "".join(parts) + escape(self.text[start:end])


def separate_words(tagged: TaggedText) -> TaggedText:
    """The same, with a space after every line break that is a code between two words."""
    text = tagged.text
    breaks = sorted(
        {
            tag.start
            for tag in _flat(tagged.tags)
            if LINE_BREAK.search(tag.opening) and not text[: tag.start][-1:].isspace() and text[tag.start :].strip()
        }
    )
    if not breaks:
        return tagged

    def shift(tags: Sequence[InlineTag]) -> list[InlineTag]:
        return [
            InlineTag(
                tag.opening,
                tag.closing,
                tag.start + bisect_left(breaks, tag.start),
                tag.end + bisect_left(breaks, tag.end),
                shift(tag.inner),
            )
            for tag in tags
        ]

    pieces = [text[start:end] for start, end in zip([0, *breaks], [*breaks, len(text)], strict=True)]
    return TaggedText(" ".join(pieces), shift(tagged.tags))


def _flat(tags: Sequence[InlineTag]) -> Iterator[InlineTag]:
    for tag in tags:
        yield tag
        yield from _flat(tag.inner)


@dataclass(frozen=True)
class InlineCode:
    """One piece of inline markup as it is read: `key` links an opening code to its closing code."""

    markup: str
    position: int  # characters of text before it
    kind: str = "single"  # or "open", "close"
    key: str = ""


@dataclass(frozen=True)
class Segment:
    """A translatable unit of a file."""

    source: TaggedText
    target: TaggedText | None  # None: not translated yet
    line: int
    problem: str = ""  # why a corpus does not use it: fuzzy, obsolete, not final, …
    defect: bool = False  # whether that is an error in the file
    preserve_space: bool = False  # whether line breaks are part of the text


def nest_codes(text: str, codes: Iterable[InlineCode]) -> TaggedText:
    """Codes in order of position -> a tree of tags; codes without a partner, or that overlap others, are isolated."""
    root: list[InlineTag] = []
    open_tags: list[tuple[str, InlineTag]] = []
    for code in codes:
        if code.kind == "close" and open_tags and open_tags[-1][0] == code.key:
            _, tag = open_tags.pop()
            tag.closing, tag.end = code.markup, code.position
            continue
        siblings = open_tags[-1][1].inner if open_tags else root
        tag = InlineTag(code.markup, "", code.position, code.position)
        siblings.append(tag)
        if code.kind == "open":
            open_tags.append((code.key, tag))
    return TaggedText(text, _close_open_tags(root))


def _close_open_tags(tags: Sequence[InlineTag]) -> list[InlineTag]:
    """Tags that were never closed become isolated, and the tags inside them their siblings."""
    flat = []
    for tag in tags:
        inner = _close_open_tags(tag.inner)
        isolated = not tag.closing
        tag.inner = [] if isolated else inner
        flat += [tag, *inner] if isolated else [tag]
    return flat
