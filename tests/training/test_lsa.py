"""Embeddings from the corpus: exact where that can be checked, and translations nearest to each other."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from heedful import config
from heedful.data.pairs import Pairs
from heedful.data.parallel_corpus import ParallelCorpus, prepare_parallel
from heedful.model.transformer import build_model
from heedful.training.init.lsa import (
    _left_singular_vectors,
    _occurrences,
    cached_singular_vectors,
    lsa_embeddings,
    singular_vectors,
)
from heedful.training.tasks.translation import TranslationTask

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
    return lsa_embeddings(singular_vectors(pairs, sizes, width), torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("separate", [False, True])
def test_translations_are_nearest(separate: bool) -> None:
    """All of them by what is found, most of them where half is random."""
    pairs = dictionary_pairs(2000, second=0 if separate else WORDS)
    sizes = [4 + WORDS, 4 + WORDS] if separate else [4 + 2 * WORDS]

    def shares(rows: torch.Tensor) -> tuple[float, float]:
        """How many words have their translation nearest on the other side, and nearer than any word of their own."""
        source = rows[4 : 4 + WORDS]
        target = rows[4 + WORDS + 4 :] if separate else rows[4 + WORDS :]
        nearest = (source @ target.T).argmax(1) == torch.arange(WORDS)
        others = (source @ source.T).fill_diagonal_(-1).amax(1)
        pairwise = (source * target).sum(1)
        return float(nearest.float().mean()), float((pairwise > others).float().mean())

    result = singular_vectors(pairs, sizes, 48)
    assert shares(result) == (1.0, 1.0)
    several = [lsa_embeddings(result, torch.Generator().manual_seed(seed)) for seed in range(10)]
    assert np.mean([shares(item) for item in several], axis=0).min() > 0.93
    together = several[0][4 : 4 + WORDS] @ several[0][4 + WORDS :].T
    assert together.max() < 0.9  # and yet not the same


def test_all_rows_are_of_length_one_and_unseen_tokens_are_random() -> None:
    result = embeddings(dictionary_pairs(300, second=WORDS), [200], 16)
    torch.testing.assert_close(result.norm(dim=1), torch.ones(200))
    unseen = result[[0, 1, 2, 3, *range(4 + 2 * WORDS, 200)]]
    assert (unseen @ unseen.T).fill_diagonal_(0).abs().mean() < 2 / 16**0.5


def test_a_corpus_smaller_than_the_width() -> None:
    result = embeddings(Pairs.of([([4, 5], [6]), ([5], [7, 6])]), [10], 32)
    assert result.shape == (10, 32)
    assert result.isfinite().all()


def test_the_same_seed_finds_the_same() -> None:
    pairs = dictionary_pairs(200, second=WORDS)
    one, same, other = (embeddings(pairs, [4 + 2 * WORDS], 16, seed) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_lsa_vectors_are_the_singular_vectors() -> None:
    matrix = _occurrences(dictionary_pairs(500, second=WORDS), 4 + 2 * WORDS, 0)
    exact = torch.linalg.svd(matrix.to_dense().double())
    count = 5  # of which all differ in strength from what follows
    result = _left_singular_vectors(matrix, count).double()
    torch.testing.assert_close(result.T @ result, torch.eye(count, dtype=torch.float64), atol=1e-5, rtol=0)
    captured = (result.T @ matrix.to_dense().double()).norm() / exact.S[:count].norm()
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


def energy(result: torch.Tensor, matrix: torch.Tensor) -> float:
    """What directions capture of a matrix, of what as many could."""
    dense = matrix.to_dense().double()
    best = torch.linalg.svdvals(dense)[: result.size(1)].square().sum()
    return float((result.double().T @ dense).square().sum() / best)


@pytest.mark.parametrize("pairs", [2, 20, 40])
def test_lsa_vectors_of_few_pairs_are_exact(pairs: int) -> None:
    unseen = 200  # tokens, such as bytes that no word needs
    matrix = _occurrences(dictionary_pairs(pairs, second=WORDS), unseen + 4 + 2 * WORDS, 0)
    assert energy(_left_singular_vectors(matrix, min(16, pairs)), matrix) > 0.999


def open_corpus(folder: Path, words: str, remaining: Path) -> ParallelCorpus:
    """An encoded corpus of pairs of these two words and some numbers."""
    folder.mkdir(exist_ok=True)
    files = {}
    for side, word in zip(("source", "target"), words.split(), strict=True):
        files[side] = folder / side
        files[side].write_text("".join(f"{word} {i % 7} {i % 11}\n" for i in range(60)), encoding="utf-8")
    return prepare_parallel(config.load_config(None, [], data=files), remaining)


def test_lsa_vectors_are_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, other = (open_corpus(tmp_path / words, words, tmp_path / "kept") for words in ("one eins", "two zwei"))
    size, times = max(item.target_tokenizer.vocab_size for item in (corpus, other)), []

    def counted(pairs: Pairs, sizes: list[int], width: int) -> torch.Tensor:
        times.append(width)
        return singular_vectors(pairs, sizes, width)

    monkeypatch.setattr("heedful.training.init.lsa.singular_vectors", counted)
    result, again = (cached_singular_vectors(corpus, [size], 8) for _ in range(2))
    torch.testing.assert_close(result, singular_vectors(corpus.train, [size], 8), atol=1e-3, rtol=0)
    assert torch.equal(result, again)
    assert times == [8]
    assert cached_singular_vectors(corpus, [size], 16).shape == (size, 16)
    assert cached_singular_vectors(corpus, [size, size], 8).shape == (2 * size, 8)
    assert not torch.equal(cached_singular_vectors(other, [size], 8), result)
    assert times == [8, 16, 8, 8]
    for file in (tmp_path / "kept").rglob("directions.npy"):
        file.write_bytes(file.read_bytes()[:-2])  # damaged
    assert torch.equal(result, cached_singular_vectors(corpus, [size], 8))
    assert len(times) == 5
    assert open_corpus(tmp_path / "one eins", "one eins", tmp_path / "kept").reused


def test_lsa_vectors_that_cannot_be_cached_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = open_corpus(tmp_path / "files", "one eins", tmp_path / "kept")
    size = corpus.target_tokenizer.vocab_size
    result = cached_singular_vectors(corpus, [size], 8)
    full = OSError("192000 requested and 1984 written")

    def fail(*inputs: object) -> None:
        raise full

    monkeypatch.setattr("numpy.save", fail)
    assert torch.equal(cached_singular_vectors(corpus, [size], 8), result)
    shutil.rmtree(tmp_path / "kept")
    assert torch.equal(cached_singular_vectors(corpus, [size], 8), result)


def test_both_embeddings_of_separate_vocabularies_begin_with_their_own_rows(tmp_path: Path) -> None:
    files = {"source": tmp_path / "source", "target": tmp_path / "target"}
    numbers = np.random.default_rng(1).integers(0, 20, (400, 4))
    for path, first, end in ((files["source"], "a", ""), (files["target"], "A", " .")):  # so that ids differ
        lines = (" ".join(chr(ord(first) + i) for i in row) for row in numbers)
        path.write_text("".join(f"{line}{end}\n" for line in lines), encoding="utf-8")
    words = ["preset=tiny", "text.joint=false", "model.d_model=64", "train.embedding_init=lsa"]
    task = TranslationTask(
        prepare_parallel(requested := config.load_config(None, words, data=files), tmp_path / "kept")
    )
    model = build_model((settled := task.resolve(requested, None)).model)
    task.initialize(model, settled)
    rows = []
    for embedding, tokenizer, first in (
        (model.source_embedding, task.corpus.source_tokenizer, "a"),
        (model.embedding, task.corpus.target_tokenizer, "A"),
    ):
        ids = [tokenizer.encode(chr(ord(first) + i)) for i in range(20)]
        assert all(len(item) == 1 for item in ids)
        rows.append(embedding.weight[[value[0] for value in ids]].detach())
    nearest = (rows[0] @ rows[1].T).argmax(1)
    assert (nearest == torch.arange(20)).float().mean() > 0.8
