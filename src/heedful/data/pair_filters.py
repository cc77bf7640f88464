"""Filters of sentence pairs by name. Each one says whether a pair is dropped; it judges one pair at a time.

The cheap ones need no corpus. `LearnedFilters` holds those that learn from a sample of the corpus itself.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from statistics import median

from heedful.data.lexical_table import LexicalTable, learn_table
from heedful.formats.document import same_placeholders

Judge = Callable[[str, str], bool]  # whether a pair is dropped
NUMBER = re.compile(r"\d+(?:[.,:'’\u00a0\u202f ]?\d+)*")
SEPARATORS = re.compile(r"\D+")
CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
PUNCTUATION = re.compile(r"[\W_]+")
DIGITS = re.compile(r"\d+")
SHORT = 12  # letters: texts with fewer are not judged by their language
MEDIAN_PAIRS = 5000  # of the sample
COMMON_SCRIPT = 0.05  # share of a side's letters from which a script belongs to it


@dataclass(frozen=True)
class FilterThresholds:
    """Limits of the filters."""

    min_words: int = 1
    max_words: int = 200
    max_ratio: float = 3.0
    language_margin: float = 0.3
    script_share: float = 0.5
    min_alignment: float = 0.3  # of the corpus's median


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
class AlignmentScore:
    """How well the words of both sides translate each other, by lexical tables of both directions."""

    forward: LexicalTable
    backward: LexicalTable
    median: float  # of the sample

    @classmethod
    def learn(cls, sample: Sequence[tuple[str, str]]) -> AlignmentScore:
        tables = learn_table(sample), learn_table([(target, source) for source, target in sample])
        step = max(1, len(sample) // MEDIAN_PAIRS)
        scores = [cls(*tables, 1.0).mean_probability(*pair) for pair in sample[::step]]
        return cls(*tables, median(scores) if scores else 1.0)

    def mean_probability(self, source: str, target: str) -> float:
        """The geometric mean of the best translation probabilities of all words of both sides."""
        return math.exp((self.forward.score(source, target) + self.backward.score(target, source)) / 2)


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
        return cls(limits, languages, scripts, AlignmentScore.learn(sample) if alignment else None)

    def wrong_language(self, source: str, target: str) -> bool:
        """A side reads more like the other side's language than like its own, by character trigrams."""
        return self._foreign(source, *self.languages) or self._foreign(target, *self.languages[::-1])

    def _foreign(self, text: str, own: CharacterTrigrams, other: CharacterTrigrams) -> bool:
        if sum(map(str.isalpha, text)) < SHORT:
            return False
        found = trigrams(text)
        margin = sum(other.log_probability(each) - own.log_probability(each) for each in found) / len(found)
        return margin > self.limits.language_margin

    def wrong_script(self, source: str, target: str) -> bool:
        """Most letters of a side are in a script that this side does not use."""
        for text, usual in zip((source, target), self.scripts, strict=True):
            letters = [script_of(letter) for letter in text if letter.isalpha()]
            if sum(script not in usual for script in letters) > self.limits.script_share * len(letters):
                return True
        return False

    def misaligned(self, source: str, target: str) -> bool:
        """The words of both sides are far less likely translations of each other than in most pairs."""
        if self.alignment is None:
            return False
        return self.alignment.mean_probability(source, target) < self.limits.min_alignment * self.alignment.median


@lru_cache(1 << 16)
def script_of(letter: str) -> str:
    """LATIN, CYRILLIC, CJK: the first word of the character's name."""
    return unicodedata.name(letter, "").partition(" ")[0]


def _scripts(texts: Sequence[str]) -> frozenset[str]:
    counts = Counter(script_of(letter) for text in texts for letter in text if letter.isalpha())
    return frozenset(script for script, count in counts.items() if count >= COMMON_SCRIPT * counts.total())
