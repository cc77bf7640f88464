"""Cuts a line that is longer than a model can take at the best places it offers, and puts what comes of it together.

Translation calls this before encoding. It knows lengths only through the function that it is given.
"""

from __future__ import annotations

import bisect
import re
import unicodedata
from collections.abc import Callable

MARKS = r".!?…؟۔।॥"  # that end a sentence, if white space follows
# From the best place for a cut to the worst; the last resort, between any two characters, is not a pattern.
# The lookbehind tries a run of marks from its beginning only, so that matching takes linear time.
BORDERS = [
    re.compile(rf"(?<![{MARKS}])[{MARKS}]++[\"'»”’)\]]*+\s++|[。！？｡]++[」』”’）]*+\s*+"),  # ends of sentences
    re.compile(r"[,;:،؛–—]\s+|[，；：、､]\s*"),  # ends of clauses
    re.compile(r"\s+"),
]
WITHOUT_SPACES = re.compile(r"[\u0e00-\u0eff\u3000-\u30ff\u3400-\u9fff\uff00-\uffef]\Z")  # scripts
JOINER = "\u200d"
SKIN_TONES = ("\U0001f3fb", "\U0001f3ff")


def split_long(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Parts that fit, each as long as the kind of border it ends at allows; `"".join(parts)` is the text again.

    White space stays at the end of the part before it, and tells how to join what becomes of the parts. A single
    character that does not fit is a part of its own.
    """
    return [text] if fits(text) else _split(text, fits, 0)


def glue(before: str, after: str) -> str:
    """What comes between two sentences: a space, unless their script has none."""
    return " " if before and after and not WITHOUT_SPACES.search(before[-1]) else ""


def _split(text: str, fits: Callable[[str], bool], level: int) -> list[str]:
    cuts = _cuts(text, level)
    parts: list[str] = []
    start = done = 0  # position in the text, and cuts up to it
    while start < len(text):
        taken = _most(text, start, cuts, done, fits)
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
    return (
        JOINER in (left, right)
        or SKIN_TONES[0] <= right <= SKIN_TONES[1]
        or unicodedata.category(right) in {"Mn", "Me", "Mc"}
    )


def _most(text: str, start: int, cuts: list[int], done: int, fits: Callable[[str], bool]) -> int:
    """Cuts behind the longest part that fits: steps that double and then halve, so that few texts are measured."""
    step, known = 1, done
    while known < len(cuts) and fits(text[start : cuts[min(known + step, len(cuts)) - 1]]):
        known = min(known + step, len(cuts))
        step *= 2
    unknown = range(known + 1, min(known + step, len(cuts)))
    return known + bisect.bisect_left(unknown, True, key=lambda n: not fits(text[start : cuts[n - 1]]))
