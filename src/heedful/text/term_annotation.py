"""Terms annotated in a source text with their translations (Dinu et al., 2019): `The ⟨dog|Hund⟩ sleeps.`

The three marks are characters of a private-use area. A vocabulary that has them belongs to a model that was trained
with annotated sources (`train.glossary_augmentation`). Knows no ids and no models.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from itertools import takewhile
from typing import NamedTuple

from heedful.text.tokenizer import Tokenizer
from heedful.text.words import Span

TERM_START, TERM_TRANSLATION, TERM_END = TERM_MARKS = tuple(chr(0x10FFA0 + number) for number in range(3))
LEAST_PREFIX, PREFIX_SHARE = 3, 0.55  # of the longer word: what two forms of a word have in common


class TermAnnotation(NamedTuple):
    """A span of the text, and the translation to be used."""

    start: int
    end: int
    translation: str


class AnnotatedText(NamedTuple):
    """A text with annotations, and where they are."""

    text: str
    plain: str
    annotations: tuple[TermAnnotation, ...]  # from left to right

    @classmethod
    def of(cls, plain: str, annotations: Sequence[TermAnnotation]) -> AnnotatedText:
        parts, at = [], 0
        for annotation in annotations:
            parts += [plain[at : annotation.start], *_annotation(plain, annotation)]
            at = annotation.end
        return cls("".join((*parts, plain[at:])), plain, tuple(annotations))

    def plain_spans(self, spans: Sequence[Span]) -> list[Span]:
        """Spans of the annotated text -> spans of the plain text; what is added to a term belongs to the term."""
        places: list[Span] = []  # in the plain text, of each character
        at = 0
        for annotation in self.annotations:
            places += [(place, place + 1) for place in range(at, annotation.start)]
            before, term, after = _annotation(self.plain, annotation)
            whole = (annotation.start, annotation.end)
            places += [whole] * len(before)
            places += [(annotation.start + place, annotation.start + place + 1) for place in range(len(term))]
            places += [whole] * len(after)
            at = annotation.end
        places += [(place, place + 1) for place in range(at, len(self.plain) + 1)]
        return [
            (places[start][0], places[max(start, end - 1)][1]) if start < end else (places[start][0],) * 2
            for start, end in spans
        ]


def _annotation(plain: str, annotation: TermAnnotation) -> tuple[str, str, str]:
    """What is inserted before the term, the term, and what is inserted after it."""
    gap = " " if annotation.start and not plain[annotation.start - 1].isspace() else ""
    term = plain[annotation.start : annotation.end]
    follows = plain[annotation.end : annotation.end + 1]
    end = " " if follows.isalnum() else ""
    return f"{gap}{TERM_START} ", term, f" {TERM_TRANSLATION} {annotation.translation} {TERM_END}{end}"


def has_term_marks(tokenizer: Tokenizer) -> bool:
    """Whether a vocabulary has the marks, so that its model reads annotated sources."""
    tokens = tokenizer.encode_batch([f"a {mark}" for mark in TERM_MARKS])
    return [tokenizer.decode(ids[-1:]).strip() for ids in tokens if ids] == list(TERM_MARKS)


def are_forms(one: str, other: str) -> bool:
    """Whether two words may be forms of one word: they begin with the same letters but for case and accents."""
    one, other = _letters(one), _letters(other)
    common, longer = len(common_prefix(one, other)), max(len(one), len(other))
    return one == other or common >= max(LEAST_PREFIX, PREFIX_SHARE * longer)


def common_prefix(one: str, other: str) -> str:
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return "".join(letter for letter, _ in pairs)


@lru_cache(1 << 16)
def _letters(word: str) -> str:
    decomposed = unicodedata.normalize("NFD", word.casefold())
    return "".join(letter for letter in decomposed if not unicodedata.combining(letter))
