"""Embeddings from the corpus: exact where that can be checked, and translations nearest to each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from heedful import config
from heedful.data.pairs import Pairs
from heedful.data.store import prepare
from heedful.train.spectral import _occurrences, _singular, directions, kept_directions, spectral

WORDS = 60


def dictionary_pairs(count: int, second: int, seed: int = 0) -> Pairs:
    """Sentences of words 4 to 63, each with its translation, in another order: word w is second + w."""
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        source = 4 + random.integers(0, WORDS, random.integers(3, 9))
        rows.append((source.tolist(), (second + random.permutation(source)).tolist()))
    return Pairs.of(rows)


def embeddings(pairs: Pairs, sizes: list[int], width: int, seed: int = 1) -> torch.Tensor:
    return spectral(directions(pairs, sizes, width), torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("separate", [False, True])
def test_translations_are_nearest(separate: bool) -> None:
    pairs = dictionary_pairs(2000, second=0 if separate else WORDS)
    sizes = [4 + WORDS, 4 + WORDS] if separate else [4 + 2 * WORDS]
    found = embeddings(pairs, sizes, 48)
    source = found[4 : 4 + WORDS]
    target = found[4 + WORDS + 4 :] if separate else found[4 + WORDS :]
    nearest = (source @ target.T).argmax(1)
    assert (nearest == torch.arange(WORDS)).float().mean() > 0.95
    others = (source @ source.T).fill_diagonal_(-1).amax(1)
    assert ((source * target).sum(1) > others).float().mean() > 0.9
    assert (source * target).sum(1).max() < 0.9  # and yet not the same


def test_all_rows_are_of_length_one_and_unseen_tokens_are_random() -> None:
    found = embeddings(dictionary_pairs(300, second=WORDS), [200], 16)
    torch.testing.assert_close(found.norm(dim=1), torch.ones(200))
    unseen = found[[0, 1, 2, 3, *range(4 + 2 * WORDS, 200)]]
    assert (unseen @ unseen.T).fill_diagonal_(0).abs().mean() < 2 / 16**0.5


def test_a_corpus_smaller_than_the_width() -> None:
    found = embeddings(Pairs.of([([4, 5], [6]), ([5], [7, 6])]), [10], 32)
    assert found.shape == (10, 32)
    assert found.isfinite().all()


def test_the_same_seed_finds_the_same() -> None:
    pairs = dictionary_pairs(200, second=WORDS)
    one, same, other = (embeddings(pairs, [4 + 2 * WORDS], 16, seed) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_directions_are_the_singular_vectors() -> None:
    matrix = _occurrences(dictionary_pairs(500, second=WORDS), 4 + 2 * WORDS, 0)
    exact = torch.linalg.svd(matrix.to_dense().double())
    count = 5  # of which all differ in strength from what follows
    found = _singular(matrix, count).double()
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


def test_directions_are_found_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"source": tmp_path / "source", "target": tmp_path / "target"}
    for name, path in files.items():
        path.write_text("".join(f"{name} {i % 7} {i % 11}\n" for i in range(60)), encoding="utf-8")
    store = prepare(config.read(None, ["text.vocab_size=300"], data=files), tmp_path / "kept")
    sizes, times = [store.target_tokenizer.vocab_size], []

    def counted(pairs: Pairs, sizes: list[int], width: int) -> torch.Tensor:
        times.append(width)
        return directions(pairs, sizes, width)

    monkeypatch.setattr("heedful.train.spectral.directions", counted)
    found, again = (kept_directions(store, sizes, 8) for _ in range(2))
    torch.testing.assert_close(found, directions(store.train, sizes, 8), atol=1e-3, rtol=0)
    assert torch.equal(found, again)
    assert times == [8]
    kept_directions(store, sizes, 16)
    assert times == [8, 16]
    for file in (tmp_path / "kept").rglob("directions.npy"):
        file.write_bytes(file.read_bytes()[:-2])  # damaged
    assert torch.equal(found, kept_directions(store, sizes, 8))
    assert times == [8, 16, 8]
    assert prepare(config.read(None, ["text.vocab_size=300"], data=files), tmp_path / "kept").reused
