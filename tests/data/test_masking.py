"""What a BERT has to guess: the shares of the paper within binomial bounds, whole words, frames and segments."""

from __future__ import annotations

import math

import numpy as np
import pytest

from heedful.data.masking import Masking, add_special_tokens, word_starts
from heedful.text import Specials, train_vocabulary

SPECIALS = Specials(pad=0, bos=2, eos=3)
MASK, VOCABULARY = 4, 1000


def corruption(rate: float = 0.15, starts: np.ndarray | None = None) -> Masking:
    return Masking(SPECIALS, MASK, np.arange(5, VOCABULARY), starts, rate)


def rows(count: int = 400, length: int = 128) -> np.ndarray:
    ids = np.random.default_rng(0).integers(5, VOCABULARY, (count, length))
    ids[:, 0], ids[:, -1] = SPECIALS.bos, SPECIALS.eos
    return ids


def assert_share(hits: int, of: int, share: float) -> None:
    """Within five standard deviations of a binomial."""
    assert abs(hits - of * share) <= 5 * math.sqrt(of * share * (1 - share)), f"{hits / of:.4f} and not {share}"


@pytest.mark.parametrize("rate", [0.15, 0.4])
def test_shares_are_those_of_the_paper(rate: float) -> None:
    ids = rows()
    masked = corruption(rate).apply(ids, np.zeros_like(ids), np.random.default_rng(1))
    read, chosen = masked.ids.numpy(), masked.chosen.numpy()
    text = ids.size - 2 * len(ids)
    assert_share(int(chosen.sum()), text, rate)
    assert masked.tokens == chosen.sum()
    hidden, same = read[chosen] == MASK, read[chosen] == ids[chosen]
    assert_share(int(hidden.sum()), len(hidden), 0.8)
    assert_share(int((~hidden & ~same).sum()), len(hidden), 0.1 * (1 - 1 / 995))
    assert_share(int(same.sum()), len(hidden), 0.1 + 0.1 / 995)
    assert (read[~chosen] == ids[~chosen]).all(), "what is not asked for is as it was"
    assert (masked.labels.numpy() == ids).all()
    assert not chosen[:, [0, -1]].any(), "the frame is never asked for"
    replaced = read[chosen][~hidden & ~same]
    assert replaced.min() >= 5
    assert len(np.unique(replaced)) > 0.4 * min(995, len(replaced))


def test_each_token_is_chosen_as_often_as_any_other() -> None:
    ids = rows(count=4000, length=18)
    chosen = corruption().choose(ids, np.random.default_rng(2))[:, 1:-1].sum(0)
    for hits in chosen:  # a row without any gets one, so the share is a little higher
        assert_share(int(hits), 4000, 0.15 + 0.85**16 / 16)


def test_every_row_has_something_to_guess() -> None:
    chosen = corruption(rate=0.01).choose(rows(500, 6), np.random.default_rng(3))
    assert chosen.any(1).all()
    framed_only = np.array([[2, 3, 0, 0]])
    assert not corruption().choose(framed_only, np.random.default_rng(0)).any()


def test_whole_words_are_chosen_or_left() -> None:
    starts = np.zeros(VOCABULARY, np.bool_)
    starts[5:500] = True  # the upper half of the ids continues words
    ids = rows(300, 100)
    chosen = corruption(starts=starts).choose(ids, np.random.default_rng(4))
    word = np.cumsum(starts[ids] | np.isin(ids, (2, 3)), axis=1)
    for row in range(len(ids)):
        for number in np.unique(word[row, 1:-1]):
            inside = (word[row] == number) & ~np.isin(ids[row], (2, 3))
            assert chosen[row, inside].all() or not chosen[row, inside].any()
    words = sum(len(np.unique(item[1:-1])) for item in word)
    assert 0.13 < sum(len(np.unique(w[c])) for w, c in zip(word, chosen, strict=True)) / words < 0.17


def test_words_of_our_vocabulary_and_of_word_pieces() -> None:
    tokenizer = train_vocabulary(["unhappiness is happiness undone, happily"] * 20, 284)
    pieces = tokenizer.pieces(tokenizer.encode("unhappiness is, undone"))
    starts = word_starts(tokenizer.pieces(range(tokenizer.vocab_size)))
    begins = [bool(starts[i]) for i in tokenizer.encode("unhappiness is, undone")]
    assert [piece for piece, begin in zip(pieces, begins, strict=True) if begin and piece.startswith("▁")] == [
        piece for piece in pieces if piece.startswith("▁")
    ]
    assert not all(begins)
    assert word_starts(["play", "##ing", ",", "[SEP]"]).tolist() == [True, False, True, True]
    assert word_starts(["Ġplay", "ing", "!"]).tolist() == [True, False, True]
    assert word_starts(["a", "b"]).all(), "without marks every token is a word"


def test_frames_are_single_or_two_segments() -> None:
    content = np.arange(5, 905).reshape(60, 15)
    ids, types = add_special_tokens(content, SPECIALS, True, np.random.default_rng(5))
    assert ids.shape == types.shape == (60, 17)
    pairs = types.any(1)
    assert_share(int(pairs.sum()), 60, 0.5)
    for row, (tokens, kinds) in enumerate(zip(ids, types, strict=True)):
        assert tokens[0] == SPECIALS.bos
        assert tokens[-1] == SPECIALS.eos
        words = tokens[~np.isin(tokens, (2, 3))]
        assert words.tolist() == content[row, : len(words)].tolist()
        assert len(words) == (14 if pairs[row] else 15)
        if pairs[row]:
            border = int(kinds.argmax())
            assert tokens[border - 1] == SPECIALS.eos
            assert kinds[border:].all()
            assert 1 < border < 16
    assert not add_special_tokens(content, SPECIALS, False, np.random.default_rng(5))[1].any()
