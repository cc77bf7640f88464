"""Edits of a text, and where its words are afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from heedful.text.words import word_spans, words_at


class Edit(NamedTuple):
    """Replace the characters from `start` to `end` by `text`; an insertion if both are the same."""

    start: int
    end: int
    text: str


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """The edited text; edits are in order and do not overlap."""
    parts, at = [], 0
    for start, end, new in edits:
        parts += [text[at:start], new]
        at = end
    return "".join((*parts, text[at:]))


def moved(position: int, edits: Iterable[Edit]) -> int:
    """Where a position of the text is after the edits: after an insertion there, at the start of a replacement."""
    return position + sum(len(new) - (end - start) for start, end, new in edits if end <= position)


def moved_words(text: str, edits: Sequence[Edit], edited: str) -> list[int]:
    """For every word of the text, the number of the word of the edited text that it has become or is part of."""
    return words_at(edited, [moved(start, edits) for start, _ in word_spans(text)])
