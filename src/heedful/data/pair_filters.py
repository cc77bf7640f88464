"""Filters of sentence pairs by name. Each one says whether a pair is dropped; it judges one pair at a time.

The cheap ones need no corpus. `LearnedFilters` holds those that learn from a sample of the corpus itself.
"""

from __future__ import annotations

import math
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from heedful.data.lexical_table import LexicalTable, learn_table
from heedful.formats.document import same_placeholders

Judge = Callable[[str, str], bool]  # whether a pair is dropped
NUMBER = re.compile(r"\d+(?:[.,:'’\u00a0\u202f ]?\d+)*")
SEPARATORS = re.compile(r"\D+")
CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
PUNCTUATION = re.compile(r"[\W_]+")
DIGITS = re.compile(r"\d+")
SHORT = 12  # letters: texts with fewer are not judged by their language
MIN_SAMPLE = 100  # pairs: fewer do not show which words translate each other
SCORED_PAIRS = 20_000  # of a sample, from which the least score of an aligned pair follows
LOWEST_SHARE = 0.25  # of the mismatched pairs, by score: fewer translations than mismatched pairs score as low
COMMON_SCRIPT = 0.05  # share of a side's letters from which a script belongs to it


@dataclass(frozen=True)
class FilterThresholds:
    """Limits of the filters."""

    min_words: int = 1
    max_words: int = 200
    max_ratio: float = 3.0
    language_margin: float = 0.3
    script_share: float = 0.5
    min_alignment: float = 0.5


def is_length(source: str, target: str, limits: FilterThresholds) -> bool:
    """Too few or too many words on a side."""
    return any(not limits.min_words <= len(text.split()) <= limits.max_words for text in (source, target))


def is_ratio(source: str, target: str, limits: FilterThresholds) -> bool:
    """One side is much longer, in characters; a few characters more are no reason, and one of CJK counts as three."""
    shorter, longer = sorted(len(text) + 2 * len(CJK.findall(text)) for text in (source, target))
    return longer > limits.max_ratio * shorter + 10


def is_copy(source: str, target: str) -> bool:
    """The target is the source, and has more than a name in it: at least three words."""
    return source.casefold() == target.casefold() and len(source.split()) > 2


def numbers_differ(source: str, target: str) -> bool:
    """Numbers of two digits or more differ; separators may (3.5 and 3,5)."""
    a, b = (
        Counter(n for match in NUMBER.findall(text) if len(n := SEPARATORS.sub("", match)) > 1)
        for text in (source, target)
    )
    return a != b


def placeholders_differ(source: str, target: str) -> bool:
    """Variables such as %s and {name} differ."""
    return not same_placeholders(source, target)


CHEAP: dict[str, Judge] = {"copy": is_copy, "placeholders": placeholders_differ, "numbers": numbers_differ}


class SeenPairs:
    """Pairs that are equal, or nearly: without case, punctuation and the values of numbers."""

    def __init__(self, near: bool) -> None:
        self.near = near
        self.seen: set[bytes] = set()

    def __call__(self, source: str, target: str) -> bool:
        if self.near:
            source, target = (
                PUNCTUATION.sub("", DIGITS.sub("0", text.casefold())) or text for text in (source, target)
            )
        key = blake2b(f"{source}\t{target}".encode(), digest_size=8).digest()
        if key in self.seen:
            return True
        self.seen.add(key)
        return False


class CharacterTrigrams:
    """The trigrams of characters of one side of a sample."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.counts = Counter(trigram for text in texts for trigram in trigrams(text))
        self.total = sum(self.counts.values()) + len(self.counts) + 1

    def log_probability(self, trigram: str) -> float:
        return math.log((self.counts[trigram] + 1) / self.total)


def trigrams(text: str) -> list[str]:
    padded = f" {text.lower()} "
    return [padded[at : at + 3] for at in range(len(padded) - 2)]


@dataclass(frozen=True)
class WordTables:
    """Lexical tables of both directions."""

    forward: LexicalTable
    backward: LexicalTable

    @classmethod
    def learn(cls, pairs: Sequence[tuple[str, str]]) -> WordTables:
        return cls(learn_table(pairs), learn_table([(target, source) for source, target in pairs]))

    def score(self, source: str, target: str) -> float:
        """The mean log-probability of the best translation of every word of both sides."""
        return (self.forward.score(source, target) + self.backward.score(target, source)) / 2


@dataclass(frozen=True)
class AlignmentScore:
    """How well the words of both sides translate each other.

    A sample is split in two halves. The tables of one half score the pairs of the other: in tables that have learned
    from a mismatched pair, its rare words translate each other.
    """

    halves: tuple[WordTables, WordTables]
    least: float  # score of a pair that is kept

    @classmethod
    def learn(cls, sample: Sequence[tuple[str, str]], min_alignment: float) -> AlignmentScore:
        halves: tuple[list[tuple[str, str]], ...] = [], []
        for pair in sample:
            halves[_half(*pair)].append(pair)
        scores = cls((WordTables.learn(halves[0]), WordTables.learn(halves[1])), 0.0)
        scored = sample[:: max(1, len(sample) // SCORED_PAIRS)]
        mismatched = [(one[0], other[1]) for one, other in pairwise(scored)]
        least = _least_score(
            np.array([scores.score(*pair) for pair in scored]),
            np.array([scores.score(*pair) for pair in mismatched]),
            min_alignment,
        )
        return replace(scores, least=least)

    def score(self, source: str, target: str) -> float:
        return self.halves[1 - _half(source, target)].score(source, target)


def _half(source: str, target: str) -> int:
    """The half of a sample to which a pair belongs; copies of a pair are in the same one."""
    return zlib.crc32(f"{source}\t{target}".encode("utf-8", "replace")) & 1


def _least_score(scores: NDArray[np.float64], mismatched: NDArray[np.float64], min_alignment: float) -> float:
    """The score below which pairs are mismatched with a probability above 1 - min_alignment.

    The scores are a mixture of those of translations and of mismatched pairs. Nearly all pairs with a score in the
    lowest quarter of the mismatched ones are mismatched, which gives their share of the sample. A threshold is best
    where the densities of both have the ratio that is asked for, which maximizes the difference of their integrals.
    """
    shares = np.arange(LOWEST_SHARE, 1, 0.01)  # of the mismatched pairs
    limits = np.quantile(mismatched, shares)
    below = np.searchsorted(np.sort(scores), limits) / len(scores)
    expected = shares * below[0] / LOWEST_SHARE
    return float(limits[np.argmax(expected - (1 - min_alignment) * below)])


@dataclass(frozen=True)
class LearnedFilters:
    """What a sample of the corpus says of its two sides."""

    limits: FilterThresholds
    languages: tuple[CharacterTrigrams, CharacterTrigrams]
    scripts: tuple[frozenset[str], frozenset[str]]
    alignment: AlignmentScore | None

    @classmethod
    def learn(cls, sample: Sequence[tuple[str, str]], limits: FilterThresholds, alignment: bool) -> LearnedFilters:
        sides = [source for source, _ in sample], [target for _, target in sample]
        languages = CharacterTrigrams(sides[0]), CharacterTrigrams(sides[1])
        scripts = _scripts(sides[0]), _scripts(sides[1])
        learn = alignment and len(sample) >= MIN_SAMPLE
        return cls(limits, languages, scripts, AlignmentScore.learn(sample, limits.min_alignment) if learn else None)

    def wrong_language(self, source: str, target: str) -> bool:
        """A side reads more like the other side's language than like its own, by character trigrams."""
        return self._foreign(source, *self.languages) or self._foreign(target, *self.languages[::-1])

    def _foreign(self, text: str, own: CharacterTrigrams, other: CharacterTrigrams) -> bool:
        if sum(map(str.isalpha, text)) < SHORT:
            return False
        grams = trigrams(text)
        margin = sum(other.log_probability(gram) - own.log_probability(gram) for gram in grams) / len(grams)
        return margin > self.limits.language_margin

    def wrong_script(self, source: str, target: str) -> bool:
        """Most letters of a side are in a script that this side does not use."""
        for text, usual in zip((source, target), self.scripts, strict=True):
            letters = [script_of(letter) for letter in text if letter.isalpha()]
            if sum(script not in usual for script in letters) > self.limits.script_share * len(letters):
                return True
        return False

    def misaligned(self, source: str, target: str) -> bool:
        """The words of both sides translate each other no better than those of mismatched pairs."""
        return self.alignment is not None and self.alignment.score(source, target) < self.alignment.least


@lru_cache(1 << 16)
def script_of(letter: str) -> str:
    """LATIN, CYRILLIC, CJK: the first word of the character's name."""
    return unicodedata.name(letter, "").partition(" ")[0]


def _scripts(texts: Sequence[str]) -> frozenset[str]:
    counts = Counter(script_of(letter) for text in texts for letter in text if letter.isalpha())
    return frozenset(script for script, count in counts.items() if count >= COMMON_SCRIPT * counts.total())
