"""Embeddings to begin with, found in the corpus: tokens that occur in the same pairs are near each other.

A pair is taken for a document of both languages, and tokens get the strongest directions of the matrix of tokens and
documents: latent semantic analysis (Deerwester et al., 1990), across languages as Littman, Dumais and Landauer (1998)
have it. Translations, which share all their pairs, are nearest. What is left to learn is how to get from a word to its
translation, once for all words, instead of once for each.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from heedful.data.cache import cache_key, cached
from heedful.data.pairs import Pairs
from heedful.data.parallel_corpus import ParallelCorpus
from heedful.errors import FolderError

FILE = "directions.npy"
FORMAT = 1  # changes whenever the same pairs would give other directions
MOST_PAIRS = 100_000  # words that are nowhere in so many are left to chance
SPARE = 32  # directions beyond those that are wanted, which make those more exact
ROUNDS = 2


def lsa_embeddings(found: Tensor, generator: torch.Generator) -> Tensor:
    """Directions that were found, (V, D) -> embeddings, (V, D): rows of length 1, half from the corpus and half random.

    A word and its translation must not be the same. Tokens that the pairs do not have are random.
    """
    noise = torch.randn(found.shape, generator=generator)
    return _unit(_unit(noise) + found)


def cached_singular_vectors(corpus: ParallelCorpus, sizes: Sequence[int], width: int) -> Tensor:
    """Those of a corpus, beside which they are kept: to find them takes about as long as to import torch.

    Where they cannot be kept they are found anew, and are the same.
    """

    def find() -> Tensor:
        return singular_vectors(corpus.train, sizes, width).half()

    def fill(path: Path) -> None:
        np.save(path / FILE, find().numpy())

    def open_(path: Path, reused: bool) -> Tensor:
        return torch.from_numpy(np.load(path / FILE)).float()

    parts = {"format": FORMAT, "sizes": sizes, "width": width}
    try:
        return cached(corpus.path.parent, f"{corpus.path.name}-{cache_key(parts)}", fill, open_)
    except FolderError:
        return find().float()


def singular_vectors(pairs: Pairs, sizes: Sequence[int], width: int) -> Tensor:
    """(V, D) or, for separate vocabularies of two sizes, (V + W, D): rows of length 1, or zeros for unseen tokens."""
    tokens = sum(sizes)
    matrix = _occurrences(pairs, tokens, second=sizes[0] if len(sizes) > 1 else 0)
    found = _singular(matrix, min(width, *matrix.shape))
    seen = matrix.crow_indices().diff() > 0  # (V)
    rows = torch.zeros(tokens, width)
    rows[seen, : found.size(1)] = _unit(found[seen] - found[seen].mean(0))
    return rows


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


def _singular(matrix: Tensor, count: int) -> Tensor:
    """(V, N) -> (V, count): its left singular vectors, by random projection (Halko, Martinsson and Tropp, 2011)."""
    turned = matrix.t().to_sparse_csr()
    basis = _random_sums(matrix, min(count + SPARE, *matrix.shape))
    for _ in range(ROUNDS):
        basis, within = torch.linalg.qr(matrix @ (turned @ basis))
    vectors: Tensor = basis @ torch.linalg.svd(within)[0][:, :count]
    return vectors


def _random_sums(matrix: Tensor, count: int) -> Tensor:
    """(V, N) -> (V, count): each column is added to one of the sums, or subtracted from it.

    As good as a projection by normal numbers, which would take as long as a round (Clarkson and Woodruff, 2013).
    """
    rows, columns = matrix.shape
    generator = torch.Generator().manual_seed(0)
    into = torch.randperm(columns, generator=generator) % count  # so that no sum is empty
    signs = torch.randint(2, (columns,), generator=generator) * 2.0 - 1.0
    starts = torch.arange(rows).repeat_interleave(matrix.crow_indices().diff()) * count
    column = matrix.col_indices()
    sums = torch.zeros(rows * count).index_add_(0, starts + into[column], matrix.values() * signs[column])
    return sums.view(rows, count)


def _unit(rows: Tensor) -> Tensor:
    unit: Tensor = rows / rows.norm(dim=1, keepdim=True).clamp(min=1e-12)
    return unit
