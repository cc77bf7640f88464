"""Words of a text, and which of them a token belongs to.

White space separates words; in scripts without spaces (Chinese, Japanese, Thai, Khmer, …) every character is a word.
Alignments and confidence refer to words by number. Knows no ids and no vocabulary.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

# Thai, Lao, Myanmar, Khmer; CJK punctuation, kana, ideographs, full-width forms; with the marks that follow a letter.
SPACELESS = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff"
)
_MARKS = (
    r"\u0300-\u036f\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ecd\u102b-\u103e\u17b6-\u17d3"
    r"\u3099\u309a\ufe00-\ufe0f"
)
WORD = re.compile(rf"(?!\s)[{SPACELESS}][{_MARKS}]*|[^\s{SPACELESS}]+")
NO_WORD = -1  # for tokens outside of words, such as trailing white space

Span = tuple[int, int]  # start and end (exclusive) in characters


def word_spans(text: str) -> list[Span]:
    """The span of every word."""
    return [match.span() for match in WORD.finditer(text)]


def words(text: str) -> list[str]:
    return WORD.findall(text)


def words_of_spans(text: str, spans: Sequence[Span], pattern: re.Pattern[str] = WORD) -> list[int]:
    """The number of the word that each span belongs to; the last one if a span covers several.

    White space belongs to the word that follows it.
    """
    ends = [match.end() for match in pattern.finditer(text)]
    numbers = []
    for start, end in spans:
        piece = text[start:end]
        last = start + len(piece.rstrip()) if piece.strip() else end
        number = bisect_left(ends, last)
        numbers.append(number if number < len(ends) else NO_WORD)
    return numbers


def covered_words(text: str, spans: Sequence[Span]) -> dict[int, list[int]]:
    """By the number that `words_of_spans` gives to a span, the numbers of all words that such spans cover."""
    bounds = word_spans(text)
    covered: dict[int, set[int]] = {}
    for (start, end), last in zip(spans, words_of_spans(text, spans), strict=True):
        if last != NO_WORD:
            first = last
            while first and bounds[first - 1][1] > start and bounds[first][0] < end:
                first -= 1
            covered.setdefault(last, set()).update(range(first, last + 1))
    return {last: sorted(numbers) for last, numbers in covered.items()}


def words_at(text: str, places: Sequence[int]) -> list[int]:
    """The number of the word at, or after, each position."""
    ends = [end for _, end in word_spans(text)]
    return [bisect_right(ends, place) for place in places]
