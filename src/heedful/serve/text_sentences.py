"""A text -> its sentences and what stands between them, so that it can be put together again around translations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from heedful.text import glue
from heedful.text.sentence_splitting import MARKS

# The lookbehinds try a run of marks from its beginning only, so that matching takes linear time.
ENDS = re.compile(
    rf"(?<![{MARKS}])[{MARKS}]++[\"'»«”’)\]]*+(?=[^\S\n]++(?P<next>\S))|(?<![。！？｡])[。！？｡]++[」』”’）]*+(?=[^\n])"
)
NO_END = re.compile(
    r"(?:^|[\s(\"'“„])(?:[^\W\d_]|\d{1,2}|[A-Za-z]\.[A-Za-z]|e\.g|i\.e|z\.B|d\.h|u\.a|bzw|ca|cf|co|corp|dr|etc|fig|frau|"
    r"gen|gov|hr|inc|jr|ltd|mr|mrs|ms|no|nos|nr|prof|sen|sr|st|str|tel|usw|vgl|vol|vs)\.$",
    re.IGNORECASE,
)
LONGEST_NO_END = 12  # characters, with room to spare


@dataclass(frozen=True)
class Sentence:
    """Where a sentence stands in its text."""

    text: str
    start: int
    end: int


@dataclass
class Translated:
    """A text, its sentences, and for each of them its translations, best first."""

    text: str
    sentences: list[Sentence]
    ways: list[list[dict[str, Any]]]

    def whole(self, rank: int = 0) -> str:
        """The text with each sentence in its best translation, its second best, and so on."""
        return self.rebuilt(rank)[0]

    def rebuilt(self, rank: int) -> tuple[str, list[int]]:
        """The same, and where the translation of each sentence begins."""
        chosen = [each[min(rank, len(each) - 1)]["text"] if each else "" for each in self.ways]
        return rebuilt(self.text, self.sentences, chosen)


def sentences(text: str) -> list[Sentence]:
    """The sentences of a text, without the white space around them; a line break always ends one."""
    found, start = [], 0
    for end in [*_ends(text), len(text)]:
        piece = text[start:end]
        inner = piece.strip()
        if inner:
            first = start + len(piece) - len(piece.lstrip())
            found.append(Sentence(inner, first, first + len(inner)))
        start = end
    return found


def rebuilt(text: str, parts: Sequence[Sentence], translated: Sequence[str]) -> tuple[str, list[int]]:
    """The text with every sentence replaced, and where each replacement begins.

    What stood between sentences stays, and a space comes where none was needed.
    """
    out, at, starts = "", 0, []
    for sentence, replacement in zip(parts, translated, strict=True):
        between = text[at : sentence.start]
        out += between or glue(out, replacement)
        starts.append(len(out))
        out += replacement
        at = sentence.end
    return out + text[at:], starts


def _ends(text: str) -> list[int]:
    """Places where a sentence ends, in order."""
    ends, line = [], 0
    for part in text.split("\n"):
        for match in ENDS.finditer(part):
            before = part[max(0, match.end() - LONGEST_NO_END) : match.end()]
            if match.group() == "." and (match["next"].islower() or NO_END.search(before)):
                continue
            ends.append(line + match.end())
        line += len(part) + 1
        ends.append(min(line, len(text)))
    return ends
