"""Parts of a line, which are searched separately, and the translations that are joined from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from heedful.inference.protected_text import ProtectedText
from heedful.inference.term_matching import TermMatch
from heedful.search import LexicalConstraint
from heedful.text import NO_WORD, Tokenizer, sentence_separator, words_at, words_of_spans
from heedful.text.term_annotation import AnnotatedText
from heedful.text.words import Span

Alignment = list[tuple[int, int]]  # (source word, target word), both counted from 0


@dataclass(frozen=True)
class SourcePart:
    """A line, or a part of one that is too long: source ids, forced and allowed target ids, required phrases.

    The first `added` ids are a language code; the others are those of `text` from index `skipped` on. If the line has
    placeholders, `text` is what the model reads instead of them. If terms are annotated, the ids are those of
    `annotated`. Without ids there is nothing to translate.
    """

    line: int
    ids: list[int]
    prefix: tuple[int, ...]
    text: str = ""
    added: int = 0
    skipped: int = 0
    first_word: int = 0  # number of the first word of `text` in the line
    shortlist: npt.NDArray[np.int32] | None = field(default=None, compare=False, repr=False)
    protected: ProtectedText | None = None
    terms: tuple[TermMatch, ...] = ()  # of a glossary
    phrases: LexicalConstraint | None = field(default=None, compare=False, repr=False)
    annotated: AnnotatedText | None = None  # what the model reads instead of `text`
    unread: int = 0  # tokens at the end of a document that the model does not read

    def spans(self, tokenizer: Tokenizer) -> list[Span]:
        """The span in `text` of each id that is not added."""
        if self.annotated is not None:
            return self.annotated.plain_spans(tokenizer.spans(self.annotated.text))
        return tokenizer.spans(self.text)[self.skipped :][: len(self.ids) - self.added]

    def words(self, tokenizer: Tokenizer) -> list[int]:
        """The word of the line that each id belongs to, `NO_WORD` for added ids."""
        words = words_of_spans(self.text, self.spans(tokenizer))
        return [NO_WORD] * self.added + [word if word == NO_WORD else self.first_word + word for word in words]


@dataclass(frozen=True)
class Translation:
    """One translation. `alignment`, if requested, links words as (source, target).

    `warnings` says what to check: numbers of the source that are missing, terms of a glossary that are not used, the
    end of a document that is not read.
    `confidence`, if requested, is the share of words that are expected to be right, and `word_confidence` the
    probability of every word.
    """

    text: str
    score: float
    log_prob: float
    ids: tuple[int, ...]
    token_log_probs: tuple[float, ...]
    tokenizer: Tokenizer = field(repr=False, compare=False)
    alignment: Alignment | None = None
    warnings: tuple[str, ...] = ()
    confidence: float | None = None
    word_confidence: tuple[float, ...] | None = None

    @property
    def tokens(self) -> tuple[str, ...]:
        """The text of each token."""
        return tuple(self.tokenizer.pieces(self.ids))


def join_parts(parts: Sequence[list[Translation]]) -> list[Translation]:
    """Join the translations of a line's parts: the best of each, then the second best of each, and so on."""
    if len(parts) == 1:
        return parts[0]
    lines = []
    for nth_best in zip(*parts, strict=False):
        text, starts = "", []
        for part in nth_best:
            text += sentence_separator(text, part.text)
            starts.append(len(text))
            text += part.text
        alignment = [
            (source, before + target)
            for part, before in zip(nth_best, words_at(text, starts), strict=True)
            for source, target in part.alignment or []
        ]
        lines.append(
            Translation(
                text,
                sum(part.score for part in nth_best),
                sum(part.log_prob for part in nth_best),
                tuple(id for part in nth_best for id in part.ids),
                tuple(value for part in nth_best for value in part.token_log_probs),
                nth_best[0].tokenizer,
                alignment if nth_best[0].alignment is not None else None,
                tuple(warning for part in nth_best for warning in part.warnings),
                *_joined_confidence(nth_best),
            )
        )
    return lines


def _joined_confidence(parts: Sequence[Translation]) -> tuple[float | None, tuple[float, ...] | None]:
    """The mean confidence of the parts by their number of words, and that of all words."""
    words = [part.word_confidence for part in parts]
    by_part = [of_part for of_part in words if of_part is not None]
    if len(by_part) < len(words):
        return None, None
    total = sum(map(len, by_part))
    weighted = sum((part.confidence or 0.0) * len(of_part) for part, of_part in zip(parts, by_part, strict=True))
    return (weighted / total if total else 1.0), tuple(value for of_part in by_part for value in of_part)


def pharaoh(alignment: Alignment) -> str:
    """[(0, 0), (2, 1)] -> '0-0 2-1'."""
    return " ".join(f"{source}-{target}" for source, target in sorted(alignment))
