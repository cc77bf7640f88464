"""The words of a text, as white space separates them, and which of them a token belongs to.

Words are what `text.split()` finds. Alignments count them, so that links fit the text that is read or printed, whatever
white space it holds. Knows no ids and no vocabulary.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

WORD = re.compile(r"\S+")  # as str.split() has it: both ask str.isspace()
NO_WORD = -1  # of a token that belongs to no word, such as the space after the last one

Span = tuple[int, int]  # the first character, and the one after the last


def words_of_spans(text: str, spans: Sequence[Span], pattern: re.Pattern[str] = WORD) -> list[int]:
    """The number of the word that each span of the text belongs to, the last if it holds several.

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
    """The number of the word that each place in the text is in, or comes before."""
    ends = [match.end() for match in WORD.finditer(text)]
    return [bisect_right(ends, place) for place in places]
