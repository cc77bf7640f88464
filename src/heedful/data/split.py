"""Subwords that are now and then read as what they were merged from: a word has many spellings, and all are learned.

Byte-pair encoding merges two pieces into one, again and again. Here some merges are undone, by chance and anew each
time that a sentence is read, so that a model also learns what the parts of its words mean. It is BPE-dropout (Provilkov
et al., 2020) from the other end, and needs the ids alone: no text is encoded again.
"""

from __future__ import annotations

import json

import numpy as np
from numpy.typing import NDArray

from heedful.data.pairs import Pairs, Ragged
from heedful.text import Tokenizer

Ids = NDArray[np.int64]


class Splits:
    """What each subword of a vocabulary was merged from, and how likely it is to be read so."""

    def __init__(self, parts: Ids, rate: float) -> None:
        """`parts` are (V, 2) ids, -1 for what was not merged."""
        self.parts, self.rate = parts, rate

    @classmethod
    def of(cls, tokenizer: Tokenizer, rate: float) -> Splits | None:
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

    def growth(self, sequences: Ragged) -> float:
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

    def split(self, sequences: Ragged, rows: Ids, longest: int, random: np.random.Generator) -> Ragged:
        """These sequences, some of their subwords split; what would be longer than `longest` stays as it is."""
        ids, row = sequences.flat(rows).astype(np.int64), np.repeat(np.arange(len(rows)), sequences.lengths[rows])
        undone, of_row = self._undo(ids, row, random)
        lengths = np.bincount(of_row, minlength=len(rows))
        if (long := lengths > longest).any():
            kept = np.concatenate([undone[~long[of_row]], ids[long[row]]])
            of_row = np.concatenate([of_row[~long[of_row]], row[long[row]]])
            undone, lengths = kept[np.argsort(of_row, kind="stable")], np.bincount(of_row, minlength=len(rows))
        return Ragged(undone.astype(np.uint32), np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))

    def _undo(self, ids: Ids, row: Ids, random: np.random.Generator) -> tuple[Ids, Ids]:
        """(n), (n) -> (m), (m): ids and the sequence that each is of; what was split may be split again."""
        fresh = np.ones(len(ids), bool)
        while True:
            cut = fresh & (self.parts[ids, 0] >= 0) & (random.random(len(ids)) < self.rate)
            if not cut.any():
                return ids, row
            at = np.arange(len(ids)) + np.cumsum(cut) - cut  # where each stands afterwards
            longer, fresh = np.empty(len(ids) + int(cut.sum()), np.int64), np.zeros(len(ids) + int(cut.sum()), bool)
            longer[at] = np.where(cut, self.parts[ids, 0], ids)
            longer[at[cut] + 1] = self.parts[ids[cut], 1]
            fresh[at[cut]] = fresh[at[cut] + 1] = True
            ids, row = longer, np.repeat(row, 1 + cut)


def split_pairs(pairs: Pairs, rows: Ids, by: tuple[Splits, Splits], longest: int, random: np.random.Generator) -> Pairs:
    """The pairs of these numbers, both sides split."""
    return Pairs(by[0].split(pairs.sources, rows, longest, random), by[1].split(pairs.targets, rows, longest, random))
