"""Lexical translation probabilities learned on a parallel corpus by IBM Model 1 (Brown et al., 1993), in NumPy.

A pair that is a translation has, for most words of the target, a word of the source that translates to it. Knows words,
no tokens of a model.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\u0e00-\u0eff]|[^\W_]+")  # a character in scripts without spaces
MAX_WORDS = 30_000  # most frequent words of each side
MAX_LENGTH = 60  # words of a sentence that are used
ITERATIONS = 5
LEAST = 1e-4  # probability of a word that has no translation


def words_of(text: str) -> list[str]:
    return WORD.findall(text.lower())[:MAX_LENGTH]


@dataclass(frozen=True)
class LexicalTable:
    """p(target word | source word) of word pairs that occur together."""

    source_ids: dict[str, int]
    target_ids: dict[str, int]
    keys: NDArray[np.int64]  # source id * number of target words + target id, sorted
    probabilities: NDArray[np.float64]

    def probability(self, source: str, target: str) -> float:
        """p(target | source); 0 for words that never occur together."""
        s, t = self.source_ids.get(source), self.target_ids.get(target)
        return float(self._lookup(np.array([s]), np.array([t]))[0, 0]) if s is not None and t is not None else 0.0

    def score(self, source: str, target: str) -> float:
        """The mean over target words of the best log p(target word | source word); 0 if no word is known."""
        sources = np.array([self.source_ids[word] for word in words_of(source) if word in self.source_ids], np.int64)
        targets = np.array([self.target_ids[word] for word in words_of(target) if word in self.target_ids], np.int64)
        if not len(targets) or not len(sources):
            return 0.0
        return float(np.log(np.maximum(self._lookup(sources, targets).max(axis=0), LEAST)).mean())

    def _lookup(self, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> NDArray[np.float64]:
        """-> (source words, target words)."""
        keys = sources[:, None] * len(self.target_ids) + targets[None, :]
        places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[places] == keys, self.probabilities[places], 0.0)


def learn_table(pairs: Sequence[tuple[str, str]], iterations: int = ITERATIONS) -> LexicalTable:
    """Expectation maximization from uniform probabilities."""
    split = [(words_of(source), words_of(target)) for source, target in pairs]
    source_ids = _vocabulary(source for source, _ in split)
    target_ids = _vocabulary(target for _, target in split)
    keys, groups, sources = _links(split, source_ids, target_ids)
    unique, places = np.unique(keys, return_inverse=True)
    probabilities: NDArray[np.float64] = np.ones(len(unique))
    for _ in range(iterations):
        weights = probabilities[places]
        weights /= np.bincount(groups, weights)[groups]  # over the source words of each target word
        totals = np.bincount(sources, weights, len(source_ids))
        probabilities = np.bincount(places, weights, len(unique)) / totals[unique // max(1, len(target_ids))]
    return LexicalTable(source_ids, target_ids, unique, probabilities)


def _vocabulary(sentences: Iterable[list[str]]) -> dict[str, int]:
    counts = Counter(word for sentence in sentences for word in sentence)
    return {word: number for number, (word, _) in enumerate(counts.most_common(MAX_WORDS))}


def _links(
    split: Sequence[tuple[list[str], list[str]]], source_ids: dict[str, int], target_ids: dict[str, int]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Every link of a source word and a target word: its key, the number of the target word, the source word."""
    keys, groups, sources, group = [], [], [], 0
    for source, target in split:
        a = np.array([source_ids[word] for word in source if word in source_ids], np.int64)
        b = np.array([target_ids[word] for word in target if word in target_ids], np.int64)
        if not len(a) or not len(b):
            continue
        keys.append((a[None, :] * len(target_ids) + b[:, None]).ravel())
        groups.append(np.repeat(np.arange(group, group + len(b)), len(a)))
        sources.append(np.tile(a, len(b)))
        group += len(b)
    empty = [np.zeros(0, np.int64)]
    return np.concatenate(keys or empty), np.concatenate(groups or empty), np.concatenate(sources or empty)
