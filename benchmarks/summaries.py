"""What summarization.py shares with the BART loop beside it: reading pairs, and the baselines that learn nothing."""

from __future__ import annotations

import gzip
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """Documents and summaries of a compressed TSV file."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = (line.rstrip("\n").split("\t") for line in file)
        return [(row[0], row[1]) for row in rows if len(row) >= 2]


class TfIdf:
    """Cosine similarity of bags of words over an inverted index of the training documents."""

    def __init__(self, documents: Sequence[str]) -> None:
        bags = [Counter(document.lower().split()) for document in documents]
        counts = Counter(word for bag in bags for word in bag)
        self.idf = {word: math.log(len(bags) / count) for word, count in counts.items()}
        postings: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for number, bag in enumerate(bags):
            for word, weight in self._vector(bag).items():
                postings[word].append((number, weight))
        self.index = {
            word: (np.array([number for number, _ in entries]), np.array([weight for _, weight in entries]))
            for word, entries in postings.items()
        }
        self.size = len(bags)

    def nearest(self, document: str) -> tuple[int, float]:
        """The most similar training document and its cosine."""
        scores = np.zeros(self.size)
        for word, weight in self._vector(Counter(document.lower().split())).items():
            if word in self.index:
                numbers, weights = self.index[word]
                scores[numbers] += weight * weights
        return int(scores.argmax()), float(scores.max())

    def _vector(self, bag: Counter[str]) -> dict[str, float]:
        weights = {word: (1 + math.log(count)) * self.idf.get(word, 0.0) for word, count in bag.items()}
        norm = math.sqrt(sum(weight**2 for weight in weights.values())) or 1.0
        return {word: weight / norm for word, weight in weights.items() if weight}
