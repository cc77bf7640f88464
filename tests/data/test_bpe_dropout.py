"""Subwords that are read as what they were merged from."""

import numpy as np
import pytest

from heedful.data.bpe_dropout import BPEDropout, apply_bpe_dropout
from heedful.data.pairs import Pairs, RaggedIds
from heedful.text.vocabulary import train_vocabulary

LINES = ["the dog sleeps in the garden", "a garden and a gardener", "dogs sleep", "the gardener sees the dogs"] * 40


@pytest.fixture(scope="module")
def tokenizer():
    return train_vocabulary(LINES, vocab_size=300)


@pytest.fixture(scope="module")
def encoded(tokenizer):
    return RaggedIds.of(tokenizer.encode_batch(LINES))


def rows(sequences):
    return [list(map(int, sequences[i])) for i in range(len(sequences))]


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.99])
def test_the_text_stays_the_same(tokenizer, encoded, rate):
    numbers = np.array([5, 0, 5, 17, 3])
    split = BPEDropout.of(tokenizer, rate).split(encoded, numbers, 1000, np.random.default_rng(1))
    assert tokenizer.decode_batch(rows(split)) == [LINES[i] for i in numbers]


def test_with_all_merges_undone_characters_are_left(tokenizer, encoded):
    split = BPEDropout.of(tokenizer, 1.0).split(encoded, np.arange(4), 1000, np.random.default_rng(1))
    for i in range(4):
        assert tokenizer.pieces(split[i]) == list("▁" + LINES[i].replace(" ", "▁"))


def test_each_merge_is_undone_as_often_as_the_rate_says(tokenizer):
    (dog,) = tokenizer.encode("dogs")
    splits = BPEDropout.of(tokenizer, 0.3)
    many = RaggedIds.of([[dog]] * 20_000)
    split = splits.split(many, np.arange(len(many)), 1000, np.random.default_rng(2))
    assert np.mean(split.lengths > 1) == pytest.approx(0.3, abs=0.015)
    left, right = splits.parts[dog]
    again = [parts for parts in rows(split) if len(parts) > 1]
    mergeable = [part for part in (left, right) if splits.parts[part, 0] >= 0]
    stayed = np.mean([parts == [left, right] for parts in again])
    assert stayed == pytest.approx(0.7 ** len(mergeable), abs=0.02)


def test_growth_is_the_expected_length(tokenizer, encoded):
    splits = BPEDropout.of(tokenizer, 0.2)
    numbers = np.tile(np.arange(len(encoded)), 20)
    split = splits.split(encoded, numbers, 1000, np.random.default_rng(3))
    assert splits.growth(encoded) == pytest.approx(split.lengths.sum() / encoded.lengths[numbers].sum(), rel=0.01)
    assert BPEDropout.of(tokenizer, 0.0).growth(encoded) == 1


def test_what_would_be_too_long_stays_as_it_is(tokenizer, encoded):
    numbers, longest = np.arange(len(encoded)), 12
    split = BPEDropout.of(tokenizer, 0.5).split(encoded, numbers, longest, np.random.default_rng(4))
    whole = [rows(encoded)[i] == row for i, row in enumerate(rows(split))]
    assert any(whole) and not all(whole)
    for i, row in enumerate(rows(split)):
        assert len(row) <= longest or row == rows(encoded)[i]
    assert tokenizer.decode_batch(rows(split)) == LINES


def test_the_same_seed_splits_the_same(tokenizer, encoded):
    pairs, by = Pairs(encoded, encoded), (BPEDropout.of(tokenizer, 0.3),) * 2
    first, second, other = (
        apply_bpe_dropout(pairs, np.arange(8), by, 1000, np.random.default_rng(seed)) for seed in (7, 7, 8)
    )
    assert rows(first.sources) == rows(second.sources) and rows(first.targets) == rows(second.targets)
    assert rows(first.sources) != rows(other.sources)
    assert rows(first.sources) != rows(first.targets)  # sides are split apart


def test_nothing_is_split_without_merges():
    class Other:
        vocab_size = 5

        def to_json(self):
            return '{"model": {"type": "Unigram"}}'

    assert BPEDropout.of(Other(), 0.1) is None
