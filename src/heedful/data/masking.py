"""Blocks of tokens -> inputs and labels of a masked language model (BERT; Devlin et al., 2019).

15 % of the tokens are chosen for prediction; of these 80 % are masked, 10 % replaced by a random token, 10 % unchanged.
A pure function of the tokens and the random generator. Knows no text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.data.batch import MicroBatch
from heedful.text import Specials, Tokenizer

MASKED, REPLACED = 0.8, 0.9  # cumulative shares of masked and of replaced tokens
Rows = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class MaskedBatch(MicroBatch):
    """(B, T) each: input ids, token types, labels, and which positions are predicted."""

    ids: Tensor
    types: Tensor
    labels: Tensor
    chosen: Tensor
    tokens: int  # positions that are predicted

    def rows(self, part: NDArray[np.int64]) -> MaskedBatch:
        """The rows of these numbers."""
        return self.with_each(lambda rows: rows[part], tokens=int(self.chosen[part].sum()))


@dataclass(frozen=True)
class Masking:
    """How tokens are chosen for prediction, and what replaces them."""

    specials: Specials
    mask_id: int
    words: NDArray[np.integer]  # ids without special tokens, from which replacements are drawn
    starts: Flags | None = None  # whether each id starts a word (whole-word masking); None: single tokens
    rate: float = 0.15

    @classmethod
    def of(cls, tokenizer: Tokenizer, rate: float, whole_words: bool) -> Masking:
        special = {tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, *tokenizer.extras.values()}
        words = np.array([i for i in range(tokenizer.vocab_size) if i not in special])
        starts = word_starts(tokenizer.pieces(range(tokenizer.vocab_size))) if whole_words else None
        assert tokenizer.mask_id is not None
        return cls(tokenizer.specials, tokenizer.mask_id, words, starts, rate)

    def choose(self, ids: Rows, random: np.random.Generator) -> Flags:
        """(B, T) -> (B, T): which positions are predicted, at least one in every row that has text."""
        is_text = ~np.isin(ids, (self.specials.pad, self.specials.bos, self.specials.eos))
        draws = random.random(ids.shape)
        if self.starts is not None:  # all tokens of a word share one draw
            word = np.cumsum(self.starts[ids] | ~is_text, axis=1) - 1
            draws = np.take_along_axis(draws, np.maximum(word, 0), axis=1)
        chosen: Flags = is_text & (draws < self.rate)
        lowest = np.where(is_text, draws, np.inf)
        none = ~chosen.any(1) & is_text.any(1)
        chosen[none] = (lowest == lowest.min(1, keepdims=True))[none]
        return chosen

    def apply(self, ids: Rows, types: Rows, random: np.random.Generator) -> MaskedBatch:
        """(B, T) ids and token types -> a batch with masked and replaced inputs."""
        chosen = self.choose(ids, random)
        draws = random.random(ids.shape)
        others = self.words[random.integers(len(self.words), size=ids.shape)]
        inputs = np.where(chosen & (draws < MASKED), self.mask_id, ids)
        inputs = np.where(chosen & (draws >= MASKED) & (draws < REPLACED), others, inputs)
        arrays = {"ids": inputs, "types": types, "labels": ids, "chosen": chosen}
        tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
        return MaskedBatch(**tensors, tokens=int(chosen.sum()))


def word_starts(pieces: Sequence[str]) -> Flags:
    """Whether each piece starts a word: it has a prefix for a space (▁, Ġ), or no prefix for a continuation (##).

    Punctuation and single bytes count as words.
    """
    continued = any(piece.startswith("##") for piece in pieces)
    marked = any(piece.startswith(("▁", "Ġ")) for piece in pieces)

    def starts(piece: str) -> bool:
        if continued:
            return not piece.startswith("##")
        return not marked or piece.startswith(("▁", "Ġ")) or not piece[:1].isalnum()

    return np.array([starts(piece) for piece in pieces], np.bool_)


def add_special_tokens(
    content: Rows, specials: Specials, pairs: bool, random: np.random.Generator
) -> tuple[Rows, Rows]:
    """(B, C) text -> (B, C + 2) ids and token types: `<s> … </s>`, or for half of the rows two segments cut at random.

    Two segments have one more end token, so the last token of the text is left out.
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
