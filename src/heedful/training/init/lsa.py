"""LSA-initialized embeddings: tokens that occur in the same sentence pairs start near each other.

Latent semantic analysis (Deerwester et al., 1990), across languages as in Littman, Dumais and Landauer (1998): a pair
is one document of both languages, and the initial embedding of a token is its row of the left singular vectors of the
token-document matrix. Translations share their pairs, so they start nearest.
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
FORMAT = 1  # raised whenever the same pairs would give other vectors
MAX_PAIRS = 100_000  # evenly spaced; tokens that occur in none of them get random embeddings
OVERSAMPLING = 32  # extra vectors of the random projection, for accuracy
POWER_ITERATIONS = 2


def lsa_embeddings(vectors: Tensor, generator: torch.Generator) -> Tensor:
    """Singular vectors (V, D) -> embeddings (V, D) of unit length: the sum of the vector and a random one.

    The random half keeps a word apart from its translation. Tokens that do not occur are random.
    """
    noise = torch.randn(vectors.shape, generator=generator)
    return _normalize_rows(_normalize_rows(noise) + vectors)


def cached_singular_vectors(corpus: ParallelCorpus, sizes: Sequence[int], width: int) -> Tensor:
    """Singular vectors of a corpus, from its cache folder; computed again where the cache cannot be written."""

    def compute() -> Tensor:
        return singular_vectors(corpus.train, sizes, width).half()

    def fill(path: Path) -> None:
        np.save(path / FILE, compute().numpy())

    def open_(path: Path, reused: bool) -> Tensor:
        return torch.from_numpy(np.load(path / FILE)).float()

    parts = {"format": FORMAT, "sizes": sizes, "width": width}
    try:
        return cached(corpus.path.parent, f"{corpus.path.name}-{cache_key(parts)}", fill, open_)
    except FolderError:
        return compute().float()


def singular_vectors(pairs: Pairs, sizes: Sequence[int], width: int) -> Tensor:
    """(V, D) or, for separate vocabularies of two sizes, (V + W, D): unit rows, zeros for tokens that do not occur."""
    tokens = sum(sizes)
    matrix = _occurrences(pairs, tokens, second=sizes[0] if len(sizes) > 1 else 0)
    vectors = _left_singular_vectors(matrix, min(width, *matrix.shape))
    occurs = matrix.crow_indices().diff() > 0  # (V)
    rows = torch.zeros(tokens, width)
    rows[occurs, : vectors.size(1)] = _normalize_rows(vectors[occurs] - vectors[occurs].mean(0))
    return rows


def _occurrences(pairs: Pairs, tokens: int, second: int) -> Tensor:
    """(V, N), rows of unit length: which tokens occur in which pairs; short pairs weigh more."""
    chosen = np.linspace(0, len(pairs), min(len(pairs), MAX_PAIRS), endpoint=False, dtype=np.int64)
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
        warnings.simplefilter("ignore", UserWarning)  # "sparse CSR tensor support is in beta state"
        return torch.sparse_csr_tensor(*parts, (tokens, len(chosen)), check_invariants=True)


def _left_singular_vectors(matrix: Tensor, count: int) -> Tensor:
    """(V, N) -> (V, count): left singular vectors by random projection (Halko, Martinsson and Tropp, 2011)."""
    transposed = matrix.t().to_sparse_csr()
    basis = _random_sums(matrix, min(count + OVERSAMPLING, *matrix.shape))
    for _ in range(POWER_ITERATIONS):
        basis, within = torch.linalg.qr(matrix @ (transposed @ basis))
    vectors: Tensor = basis @ torch.linalg.svd(within)[0][:, :count]
    return vectors


def _random_sums(matrix: Tensor, count: int) -> Tensor:
    """(V, N) -> (V, count): CountSketch (Clarkson and Woodruff, 2013): add each column to one sum, with a random sign.

    As accurate as a Gaussian projection, which would take as long as a power iteration.
    """
    rows, columns = matrix.shape
    generator = torch.Generator().manual_seed(0)
    into = torch.randperm(columns, generator=generator) % count  # no sum is empty
    signs = torch.randint(2, (columns,), generator=generator) * 2.0 - 1.0
    starts = torch.arange(rows).repeat_interleave(matrix.crow_indices().diff()) * count
    column = matrix.col_indices()
    sums = torch.zeros(rows * count).index_add_(0, starts + into[column], matrix.values() * signs[column])
    return sums.view(rows, count)


def _normalize_rows(rows: Tensor) -> Tensor:
    unit: Tensor = rows / rows.norm(dim=1, keepdim=True).clamp(min=1e-12)
    return unit
