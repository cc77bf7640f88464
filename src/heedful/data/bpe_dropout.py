"""Subwords that are now and then read as what they were merged from: a word has many spellings, and all are learned.

Byte-pair encoding merges two pieces into one, again and again. Here some merges are undone, by chance and anew each
time that a sentence is read, so that a model also learns what the parts of its words mean. It is BPE-dropout (Provilkov
et al., 2020) from the other end, and needs the ids alone: no text is encoded again.
"""

from __future__ import annotations

import json

import numpy as np
from numpy.typing import NDArray

from heedful.data.pairs import Pairs, RaggedIds
from heedful.text import Tokenizer

Ids = NDArray[np.int64]


class BPEDropout:
    """What each subword of a vocabulary was merged from, and how likely it is to be read so."""

    def __init__(self, parts: Ids, rate: float) -> None:
        """`parts` are (V, 2) ids, -1 for what was not merged."""
        self.parts, self.rate = parts, rate
        self.chances = np.where(parts[:, 0] >= 0, rate, 0.0)

    @classmethod
    def of(cls, tokenizer: Tokenizer, rate: float) -> BPEDropout | None:
        """None for a vocabulary that was not made by merging."""
        model = json.loads(tokenizer.to_json()).get("model", {})
        if model.get("type") != "BPE":
            return None
        vocabulary, parts = model["vocab"], np.full((tokenizer.vocab_size, 2), -1, np.int64)
        for left, right in model["merges"]:
            merged = vocabulary.get(left + right)
            if merged is not None and parts[merged, 0] < 0:
                parts[merged] = vocabulary[left], vocabulary[right]
        return cls(parts, rate)

    def growth(self, sequences: RaggedIds) -> float:
        """How many times as many subwords there will be, in the mean."""
        counts = np.bincount(sequences.ids, minlength=len(self.parts))
        lengths = np.ones(len(self.parts))
        merged = np.flatnonzero(self.parts[:, 0] >= 0)
        while True:  # as often as merges are nested
            longer = lengths.copy()
            longer[merged] = 1 - self.rate + self.rate * lengths[self.parts[merged]].sum(1)
            if np.array_equal(longer, lengths):
                return float(counts @ lengths / max(1, counts.sum()))
            lengths = longer

    def split(self, sequences: RaggedIds, rows: Ids, longest: int, random: np.random.Generator) -> RaggedIds:
        """These sequences, some of their subwords split; what would be longer than `longest` stays as it is."""
        ids, lengths = sequences.flat(rows).astype(np.int64), sequences.lengths[rows]
        undone, counts = self._undo(ids, random)
        starts = _starts(lengths)
        offsets = _starts(counts)[starts]
        if (long := np.diff(offsets) > longest).any():
            stays = np.repeat(long, lengths)
            split = undone[~np.repeat(stays, counts)]
            counts[stays] = 1
            undone, offsets = np.repeat(ids, counts), _starts(counts)[starts]
            undone[~np.repeat(stays, counts)] = split
        return RaggedIds(undone.astype(np.uint32), offsets)

    def _undo(self, ids: Ids, random: np.random.Generator) -> tuple[Ids, Ids]:
        """(n) -> (m), (n): what is read, and how many of it for each id; parts are split as wholes are."""
        counts, cut = np.ones(len(ids), np.int64), random.random(len(ids)) < self.chances[ids]
        if not cut.any():
            return ids, counts
        parts, of_parts = self._undo(self.parts[ids[cut]].ravel(), random)
        counts[cut] = of_parts[::2] + of_parts[1::2]
        undone = np.repeat(ids, counts)
        undone[np.repeat(cut, counts)] = parts
        return undone, counts


def _starts(lengths: NDArray[np.integer]) -> Ids:
    """(n) -> (n + 1): where each begins, and where the last ends."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def apply_bpe_dropout(
    pairs: Pairs, rows: Ids, by: tuple[BPEDropout, BPEDropout], longest: int, random: np.random.Generator
) -> Pairs:
    """The pairs of these numbers, both sides split."""
    return Pairs(by[0].split(pairs.sources, rows, longest, random), by[1].split(pairs.targets, rows, longest, random))
