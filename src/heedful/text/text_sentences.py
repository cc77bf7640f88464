"""Splits a text into sentences, and replaces each sentence by its translation with the white space kept."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from heedful.text.placeholders import find_placeholders
from heedful.text.sentence_splitting import MARKS, sentence_separator

# The lookbehinds try a run of marks from its beginning only, so that matching takes linear time.
SENTENCE_END = re.compile(
    rf"(?<![{MARKS}])[{MARKS}]++[\"'»«”’)\]]*+(?=[^\S\n]++(?P<next>\S))|(?<![。！？｡])[。！？｡]++[」』”’）]*+(?=[^\n])"
)
ABBREVIATION = re.compile(
    r"(?:^|[\s(\"'“„])(?:[^\W\d_]|\d{1,2}|[A-Za-z]\.[A-Za-z]|e\.g|i\.e|z\.B|d\.h|u\.a|bzw|ca|cf|co|corp|dr|etc|fig|frau|"
    r"gen|gov|hr|inc|jr|ltd|mr|mrs|ms|no|nos|nr|prof|sen|sr|st|str|tel|usw|vgl|vol|vs)\.$",
    re.IGNORECASE,
)
MAX_ABBREVIATION = 12  # characters; longer than any match of ABBREVIATION


@dataclass(frozen=True)
class SentenceSpan:
    """A sentence and its character offsets in the text."""

    text: str
    start: int
    end: int


@dataclass
class SentenceTranslations:
    """A text, its sentences, and the n-best translations of each sentence."""

    text: str
    sentences: list[SentenceSpan]
    n_best: list[list[dict[str, Any]]]

    def translation(self, rank: int = 0) -> str:
        """The text with each sentence replaced by its translation of this rank (0 is the best)."""
        return self.translation_with_starts(rank)[0]

    def translation_with_starts(self, rank: int) -> tuple[str, list[int]]:
        """`translation`, and the offset at which the translation of each sentence starts."""
        texts = [n_best[min(rank, len(n_best) - 1)]["text"] if n_best else "" for n_best in self.n_best]
        return replace_sentences(self.text, self.sentences, texts)


def split_sentences(text: str) -> list[SentenceSpan]:
    """The sentences of a text, stripped of white space; a line break ends a sentence, but nothing in a placeholder."""
    spans, start = [], 0
    for end in [*_sentence_ends(text), len(text)]:
        segment = text[start:end]
        sentence = segment.strip()
        if sentence:
            first = start + len(segment) - len(segment.lstrip())
            spans.append(SentenceSpan(sentence, first, first + len(sentence)))
        start = end
    return spans


def replace_sentences(text: str, parts: Sequence[SentenceSpan], translated: Sequence[str]) -> tuple[str, list[int]]:
    """The text with every sentence replaced, and the offset of each replacement.

    White space between sentences stays; a space is added where the source script has none and the target needs one.
    """
    output, position, starts = "", 0, []
    for sentence, replacement in zip(parts, translated, strict=True):
        between = text[position : sentence.start]
        output += between or sentence_separator(output, replacement)
        starts.append(len(output))
        output += replacement
        position = sentence.end
    return output + text[position:], starts


def _sentence_ends(text: str) -> list[int]:
    """Offsets at which sentences end, in ascending order."""
    ends = _ends_of_lines_and_marks(text)
    placeholders = find_placeholders(text)
    starts = [placeholder.start for placeholder in placeholders]
    before = [bisect_left(starts, end) - 1 for end in ends]
    return [end for end, place in zip(ends, before, strict=True) if place < 0 or placeholders[place].end <= end]


def _ends_of_lines_and_marks(text: str) -> list[int]:
    ends, line = [], 0
    for part in text.split("\n"):
        for match in SENTENCE_END.finditer(part):
            before = part[max(0, match.end() - MAX_ABBREVIATION) : match.end()]
            if match.group() == "." and (match["next"].islower() or ABBREVIATION.search(before)):
                continue
            ends.append(line + match.end())
        line += len(part) + 1
        ends.append(min(line, len(text)))
    return ends
