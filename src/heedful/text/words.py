"""White-space separated words of a text, and which of them a token belongs to.

Words are those of `text.split()`. Alignments refer to words by number. Knows no ids and no vocabulary.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

WORD = re.compile(r"\S+")  # the same words as str.split(): both use str.isspace()
NO_WORD = -1  # for tokens outside of words, such as trailing white space

Span = tuple[int, int]  # start and end (exclusive) in characters


def words_of_spans(text: str, spans: Sequence[Span], pattern: re.Pattern[str] = WORD) -> list[int]:
    """The number of the word that each span belongs to; the last one if a span covers several.

    White space belongs to the word that follows it.
    """
    ends = [match.end() for match in pattern.finditer(text)]
    words = []
    for start, end in spans:
        piece = text[start:end]
        last = start + len(piece.rstrip()) if piece.strip() else end
        number = bisect_left(ends, last)
        words.append(number if number < len(ends) else NO_WORD)
    return words


def words_at(text: str, places: Sequence[int]) -> list[int]:
    """The number of the word at, or after, each position."""
    ends = [match.end() for match in WORD.finditer(text)]
    return [bisect_right(ends, place) for place in places]
