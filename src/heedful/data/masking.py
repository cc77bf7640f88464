"""Blocks of text -> what a BERT reads, and what it has to guess (Devlin et al., 2019).

Of all tokens 15 % are chosen; of these 80 % are hidden, 10 % replaced by any other, 10 % left as they are. A pure
function of the tokens and the random numbers it is given. Knows no text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.text import Specials, Tokenizer

HIDDEN, REPLACED = 0.8, 0.9  # borders between hidden, replaced and left
Rows = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class MaskedBatch:
    """(B, T) each: what is read, which segment it belongs to, what it really was, and what has to be guessed."""

    ids: Tensor
    types: Tensor
    labels: Tensor
    chosen: Tensor
    tokens: int  # to be guessed

    def to(self, device: torch.device | str) -> MaskedBatch:
        moved = {name: getattr(self, name).to(device) for name in ("ids", "types", "labels", "chosen")}
        return replace(self, **moved)

    def rows(self, part: slice) -> MaskedBatch:
        """Some of the rows."""
        chosen = self.chosen[part]
        return MaskedBatch(self.ids[part], self.types[part], self.labels[part], chosen, int(chosen.sum()))


@dataclass(frozen=True)
class Masking:
    """How tokens are chosen, and what takes their place."""

    specials: Specials
    mask_id: int
    words: NDArray[np.integer]  # ids that are text, from which replacements are drawn
    starts: Flags | None = None  # for each id whether a word begins with it; None to choose single tokens
    rate: float = 0.15

    @classmethod
    def of(cls, tokenizer: Tokenizer, rate: float, whole_words: bool) -> Masking:
        special = {tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, *tokenizer.extras.values()}
        words = np.array([i for i in range(tokenizer.vocab_size) if i not in special])
        starts = word_starts(tokenizer.pieces(range(tokenizer.vocab_size))) if whole_words else None
        assert tokenizer.mask_id is not None
        return cls(tokenizer.specials, tokenizer.mask_id, words, starts, rate)

    def choose(self, ids: Rows, random: np.random.Generator) -> Flags:
        """(B, T) -> (B, T): what has to be guessed, at least one token of every row that has one."""
        ours = (self.specials.pad, self.specials.bos, self.specials.eos)
        may = ~np.isin(ids, ours)
        dice = random.random(ids.shape)
        if self.starts is not None:  # all tokens of a word share its number
            word = np.cumsum(self.starts[ids] | ~may, axis=1) - 1
            dice = np.take_along_axis(dice, np.maximum(word, 0), axis=1)
        chosen: Flags = may & (dice < self.rate)
        lucky = np.where(may, dice, np.inf)
        none = ~chosen.any(1) & may.any(1)
        chosen[none] = (lucky == lucky.min(1, keepdims=True))[none]
        return chosen

    def apply(self, ids: Rows, types: Rows, random: np.random.Generator) -> MaskedBatch:
        """(B, T) tokens and types -> the same, corrupted."""
        chosen = self.choose(ids, random)
        dice = random.random(ids.shape)
        others = self.words[random.integers(len(self.words), size=ids.shape)]
        read = np.where(chosen & (dice < HIDDEN), self.mask_id, ids)
        read = np.where(chosen & (dice >= HIDDEN) & (dice < REPLACED), others, read)
        a, b, c, d = (torch.from_numpy(np.ascontiguousarray(each)) for each in (read, types, ids, chosen))
        return MaskedBatch(a, b, c, d, int(chosen.sum()))


def word_starts(pieces: Sequence[str]) -> Flags:
    """For each piece whether it begins a word: it has a mark for the blank before it, or lacks one for a continuation.

    Punctuation and lone bytes are words of their own.
    """
    continued = any(piece.startswith("##") for piece in pieces)
    marked = any(piece.startswith(("▁", "Ġ")) for piece in pieces)

    def starts(piece: str) -> bool:
        if continued:
            return not piece.startswith("##")
        return not marked or piece.startswith(("▁", "Ġ")) or not piece[:1].isalnum()

    return np.array([starts(piece) for piece in pieces], np.bool_)


def frame(content: Rows, specials: Specials, pairs: bool, random: np.random.Generator) -> tuple[Rows, Rows]:
    """(B, C) text -> (B, C + 2) tokens and types: `<s> … </s>`, or for half of the rows, cut at random, two segments.

    A pair has one more end, so its last token stays out.
    """
    count, length = content.shape
    ids = np.full((count, length + 2), specials.eos, np.int64)
    types = np.zeros_like(ids)
    ids[:, 0] = specials.bos
    cuts = random.integers(1, max(2, length - 1), size=count)
    paired = (random.random(count) < 0.5) & pairs & (length >= 4)
    for row, (text, cut) in enumerate(zip(content, cuts.tolist(), strict=True)):
        if paired[row]:
            ids[row, 1 : cut + 1] = text[:cut]
            ids[row, cut + 2 : -1] = text[cut:-1]
            types[row, cut + 2 :] = 1
        else:
            ids[row, 1:-1] = text
    return ids, types
