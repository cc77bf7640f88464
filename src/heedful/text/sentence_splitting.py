"""Splits lines that exceed a model's maximum length: at sentence ends, clause ends, white space, or any character.

Translation calls this before encoding. Lengths are measured by a function of the caller.
"""

from __future__ import annotations

import bisect
import re
import unicodedata
from collections.abc import Callable

MARKS = r".!?…؟۔।॥"  # end a sentence if white space follows
# From the best boundary to the worst; the last resort, between any two characters, is not a pattern.
# The lookbehind matches a run of marks from its beginning only, so that matching takes linear time.
BORDERS = [
    re.compile(rf"(?<![{MARKS}])[{MARKS}]++[\"'»”’)\]]*+\s++|[。！？｡]++[」』”’）]*+\s*+"),  # sentence ends
    re.compile(r"[,;:،؛–—]\s+|[，；：、､]\s*"),  # clause ends
    re.compile(r"\s+"),
]
WITHOUT_SPACES = re.compile(r"[\u0e00-\u0eff\u3000-\u30ff\u3400-\u9fff\uff00-\uffef]\Z")  # scripts without spaces
JOINER = "\u200d"
SKIN_TONES = ("\U0001f3fb", "\U0001f3ff")


def split_long(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Split text into parts that fit, as long as possible and at the best boundaries; `"".join(parts) == text`.

    White space stays at the end of the part before it. A single character that does not fit is a part of its own.
    """
    return [text] if fits(text) else _split(text, fits, 0)


def sentence_separator(before: str, after: str) -> str:
    """The separator of two sentences: a space, unless their script has none."""
    return " " if before and after and not WITHOUT_SPACES.search(before[-1]) else ""


def _split(text: str, fits: Callable[[str], bool], level: int) -> list[str]:
    cuts = _cuts(text, level)
    parts: list[str] = []
    start = done = 0  # position in the text, and the number of cuts before it
    while start < len(text):
        taken = _longest_fit(text, start, cuts, done, fits)
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
    """Whether both belong to one grapheme: a letter and its accent, the parts of an emoji."""
    return (
        JOINER in (left, right)
        or SKIN_TONES[0] <= right <= SKIN_TONES[1]
        or unicodedata.category(right) in {"Mn", "Me", "Mc"}
    )


def _longest_fit(text: str, start: int, cuts: list[int], done: int, fits: Callable[[str], bool]) -> int:
    """The number of cuts up to the end of the longest part that fits, by galloping and binary search."""
    step, known = 1, done
    while known < len(cuts) and fits(text[start : cuts[min(known + step, len(cuts)) - 1]]):
        known = min(known + step, len(cuts))
        step *= 2
    unknown = range(known + 1, min(known + step, len(cuts)))
    return known + bisect.bisect_left(unknown, True, key=lambda n: not fits(text[start : cuts[n - 1]]))
