"""Embeddings from the corpus: exact where that can be checked, and translations nearest to each other."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from heedful.data.pairs import Pairs
from heedful.train.spectral import _directions, _occurrences, spectral

WORDS = 60


def dictionary_pairs(count: int, second: int, seed: int = 0) -> Pairs:
    """Sentences of words 4 to 63, each with its translation, in another order: word w is second + w."""
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        source = 4 + random.integers(0, WORDS, random.integers(3, 9))
        rows.append((source.tolist(), (second + random.permutation(source)).tolist()))
    return Pairs.of(rows)


def generator(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("separate", [False, True])
def test_translations_are_nearest(separate: bool) -> None:
    pairs = dictionary_pairs(2000, second=0 if separate else WORDS)
    sizes = [4 + WORDS, 4 + WORDS] if separate else [4 + 2 * WORDS]
    found = spectral(pairs, sizes, 48, generator())
    source = found[4 : 4 + WORDS]
    target = found[4 + WORDS + 4 :] if separate else found[4 + WORDS :]
    nearest = (source @ target.T).argmax(1)
    assert (nearest == torch.arange(WORDS)).float().mean() > 0.95
    others = (source @ source.T).fill_diagonal_(-1).amax(1)
    assert ((source * target).sum(1) > others).float().mean() > 0.9
    assert (source * target).sum(1).max() < 0.9  # and yet not the same


def test_all_rows_are_of_length_one_and_unseen_tokens_are_random() -> None:
    found = spectral(dictionary_pairs(300, second=WORDS), [200], 16, generator())
    torch.testing.assert_close(found.norm(dim=1), torch.ones(200))
    unseen = found[[0, 1, 2, 3, *range(4 + 2 * WORDS, 200)]]
    assert (unseen @ unseen.T).fill_diagonal_(0).abs().mean() < 2 / 16**0.5


def test_a_corpus_smaller_than_the_width() -> None:
    found = spectral(Pairs.of([([4, 5], [6]), ([5], [7, 6])]), [10], 32, generator())
    assert found.shape == (10, 32)
    assert found.isfinite().all()


def test_the_same_seed_finds_the_same() -> None:
    pairs = dictionary_pairs(200, second=WORDS)
    one, same, other = (spectral(pairs, [4 + 2 * WORDS], 16, generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_directions_are_the_singular_vectors() -> None:
    matrix = _occurrences(dictionary_pairs(500, second=WORDS), 4 + 2 * WORDS, 0)
    exact = torch.linalg.svd(matrix.to_dense().double())
    count = 5  # of which all differ in strength from what follows
    found = _directions(matrix, count, generator()).double()
    torch.testing.assert_close(found.T @ found, torch.eye(count, dtype=torch.float64), atol=1e-5, rtol=0)
    captured = (found.T @ matrix.to_dense().double()).norm() / exact.S[:count].norm()
    assert captured > 0.98


def test_occurrences_are_counted_as_a_loop_counts_them() -> None:
    pairs = Pairs.of([([4, 4, 5], [6, 7]), ([5], [7]), ([4, 8], [6])])
    matrix = _occurrences(pairs, 10, 0).to_dense()
    expected = np.zeros((10, 3))
    for column, tokens in enumerate([{4, 5, 6, 7}, {5, 7}, {4, 8, 6}]):
        for token in tokens:
            expected[token, column] = len(tokens) ** -0.5
    expected /= np.maximum(np.linalg.norm(expected, axis=1, keepdims=True), 1e-12)
    np.testing.assert_allclose(matrix.numpy(), expected, atol=1e-6)
