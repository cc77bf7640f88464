"""BPE-dropout (Provilkov et al., 2020) on ids: merges are undone at random each time a sentence is read.

The paper drops merges while it encodes text. Here merges of already encoded ids are undone, with the same purpose: the
model sees several segmentations of a word. No text is encoded again. Knows ids and the merges of a vocabulary.
"""

from __future__ import annotations

import json

import numpy as np
from numpy.typing import NDArray

from heedful.data.pairs import Pairs, RaggedIds
from heedful.text import Tokenizer

Ids = NDArray[np.int64]


class BPEDropout:
    """The two parts that each subword was merged from, and the probability that the merge is undone."""

    def __init__(self, parts: Ids, rate: float) -> None:
        """`parts` are (V, 2) ids, -1 for tokens that are not merged."""
        self.parts, self.rate = parts, rate
        self.chances = np.where(parts[:, 0] >= 0, rate, 0.0)

    @classmethod
    def of(cls, tokenizer: Tokenizer, rate: float) -> BPEDropout | None:
        """None for a vocabulary that is not BPE."""
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
        """The expected ratio of lengths after and before."""
        counts = np.bincount(sequences.ids, minlength=len(self.parts))
        lengths = np.ones(len(self.parts))
        merged = np.flatnonzero(self.parts[:, 0] >= 0)
        while True:  # one iteration per level of nested merges
            longer = lengths.copy()
            longer[merged] = 1 - self.rate + self.rate * lengths[self.parts[merged]].sum(1)
            if np.array_equal(longer, lengths):
                return float(counts @ lengths / max(1, counts.sum()))
            lengths = longer

    def split(self, sequences: RaggedIds, rows: Ids, longest: int, random: np.random.Generator) -> RaggedIds:
        """The given sequences with some merges undone; a sequence that would exceed `longest` is unchanged."""
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
        """(n) ids -> (m) ids, and (n) how many of them each id became; parts may be split again."""
        counts, cut = np.ones(len(ids), np.int64), random.random(len(ids)) < self.chances[ids]
        if not cut.any():
            return ids, counts
        parts, of_parts = self._undo(self.parts[ids[cut]].ravel(), random)
        counts[cut] = of_parts[::2] + of_parts[1::2]
        undone = np.repeat(ids, counts)
        undone[np.repeat(cut, counts)] = parts
        return undone, counts


def _starts(lengths: NDArray[np.integer]) -> Ids:
    """(n) lengths -> (n + 1) offsets."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def apply_bpe_dropout(
    pairs: Pairs, rows: Ids, dropout: tuple[BPEDropout, BPEDropout], longest: int, random: np.random.Generator
) -> Pairs:
    """The given pairs, with BPE-dropout on both sides."""
    return Pairs(
        dropout[0].split(pairs.sources, rows, longest, random), dropout[1].split(pairs.targets, rows, longest, random)
    )
