"""Embeddings to begin with, found in the corpus: tokens that occur in the same pairs are near each other.

A pair is taken for a document of both languages, and tokens get the strongest directions of the matrix of tokens and
documents: latent semantic analysis (Deerwester et al., 1990), across languages as Littman, Dumais and Landauer (1998)
have it. Translations, which share all their pairs, are nearest. What is left to learn is how to get from a word to its
translation, once for all words, instead of once for each.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from heedful.data.pairs import Pairs

MOST_PAIRS = 100_000  # words that are nowhere in so many are left to chance
SPARE = 32  # directions beyond those that are wanted, which make those exact
ROUNDS = 2


def spectral(pairs: Pairs, sizes: Sequence[int], width: int, generator: torch.Generator) -> Tensor:
    """(V, D) or, for separate vocabularies of two sizes, (V + W, D): rows of length 1.

    Half of each comes from the corpus and half is random: a word and its translation must not be the same. Tokens that
    the pairs do not have are random.
    """
    tokens = sum(sizes)
    noise = _unit(torch.randn(tokens, width, generator=generator))
    matrix = _occurrences(pairs, tokens, second=sizes[0] if len(sizes) > 1 else 0)
    found = _directions(matrix, min(width, tokens, matrix.size(1)), generator)
    seen = matrix.crow_indices().diff() > 0  # (V)
    noise[seen, : found.size(1)] += _unit(found[seen] - found[seen].mean(0))
    return _unit(noise)


def _occurrences(pairs: Pairs, tokens: int, second: int) -> Tensor:
    """(V, N), in rows of length 1: which tokens are in which pairs; those of short pairs belong together more."""
    chosen = np.linspace(0, len(pairs), min(len(pairs), MOST_PAIRS), endpoint=False, dtype=np.int64)
    sides = pairs.sources, pairs.targets
    row = np.concatenate([side.flat(chosen).astype(np.int64) + i * second for i, side in enumerate(sides)])
    column = np.concatenate([np.repeat(np.arange(len(chosen)), side.lengths[chosen]) for side in sides])
    places = np.sort(row * len(chosen) + column)
    row, column = np.divmod(places[np.diff(places, prepend=-1) > 0], len(chosen))  # np.unique takes seconds
    values = 1 / np.sqrt(np.bincount(column))[column]
    values /= np.sqrt(np.bincount(row, values**2, minlength=tokens))[row]
    starts = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=tokens))])
    parts = (torch.from_numpy(starts), torch.from_numpy(column), torch.from_numpy(values).float())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch calls these tensors new
        return torch.sparse_csr_tensor(*parts, (tokens, len(chosen)), check_invariants=True)


def _directions(matrix: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """(V, N) -> (V, count): its left singular vectors, by random projection (Halko, Martinsson and Tropp, 2011)."""
    turned = matrix.t().to_sparse_csr()
    spanned = matrix @ torch.randn(matrix.size(1), min(count + SPARE, *matrix.shape), generator=generator)
    for _ in range(ROUNDS):
        spanned = matrix @ (turned @ torch.linalg.qr(spanned)[0])
    vectors: Tensor = torch.linalg.svd(spanned, full_matrices=False)[0]
    return vectors[:, :count]


def _unit(rows: Tensor) -> Tensor:
    unit: Tensor = rows / rows.norm(dim=1, keepdim=True).clamp(min=1e-12)
    return unit
