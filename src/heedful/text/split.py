"""Cuts a line that is longer than a model can take at the best places it offers.

Translation calls this before encoding. It knows lengths only through the function that it is given.
"""

from __future__ import annotations

import bisect
import re
import unicodedata
from collections.abc import Callable, Sequence

# From the best place for a cut to the worst; the last resort, between any two characters, is not a pattern.
BORDERS = [
    re.compile(r"[.!?…]+[\"'»”’)\]]*\s+|[。！？｡]+[」』”’）]*\s*"),  # ends of sentences
    re.compile(r"[,;:–—]\s+|[，；：、､]\s*"),  # ends of clauses
    re.compile(r"\s+"),
]
JOINER = "\u200d"


def split_long(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Parts that fit, each as long as the kind of border it ends at allows; `"".join(parts)` is the text again.

    A single character that does not fit is a part of its own.
    """
    return [text] if fits(text) else _split(text, fits, 0)


def _split(text: str, fits: Callable[[str], bool], level: int) -> list[str]:
    cuts = _cuts(text, level)
    parts: list[str] = []
    start = done = 0  # position in the text, and cuts that lie behind it
    while start < len(text):
        taken = _most(cuts, done, lambda cut, start=start: fits(text[start:cut]))  # type: ignore[misc]
        if taken > done:
            parts.append(text[start : cuts[taken - 1]])
        else:  # not even the next segment fits
            taken = done + 1
            segment = text[start : cuts[done]]
            parts += _split(segment, fits, level + 1) if level < len(BORDERS) else [segment]
        start, done = cuts[taken - 1], taken
    return parts


def _cuts(text: str, level: int) -> list[int]:
    if level < len(BORDERS):
        cuts = [match.end() for match in BORDERS[level].finditer(text)]
    else:
        cuts = [i for i in range(1, len(text)) if not _glued(text[i - 1], text[i])]
    return cuts if cuts and cuts[-1] == len(text) else [*cuts, len(text)]


def _glued(left: str, right: str) -> bool:
    """Whether both belong to one character as a reader sees it: a letter and its accent, the parts of an emoji."""
    return JOINER in (left, right) or unicodedata.category(right) in {"Mn", "Me", "Mc"}


def _most(cuts: Sequence[int], done: int, reaches: Callable[[int], bool]) -> int:
    """How many cuts can be taken together: steps that double, then halving, so that few texts are measured."""
    step, known = 1, done
    while known < len(cuts) and reaches(cuts[min(known + step, len(cuts)) - 1]):
        known = min(known + step, len(cuts))
        step *= 2
    beyond = min(known + step, len(cuts) + 1)
    return known + bisect.bisect_left(range(known + 1, beyond), True, key=lambda n: not reaches(cuts[n - 1]))
