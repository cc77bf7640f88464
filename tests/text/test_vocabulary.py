"""What is learned: the size asked for, no piece across a border, the same for the same lines."""

import re
from collections.abc import Iterator

import pytest

from heedful.errors import DataError
from heedful.text import Tokenizer, train_vocabulary
from heedful.text.vocabulary import suggest_size

from .corpus import sentences
from .test_tokenizer import check_sentence


def pieces_of(tokenizer: Tokenizer) -> list[str]:
    return tokenizer.pieces(range(tokenizer.vocab_size))[260:]


def test_an_explicit_size_is_met_exactly() -> None:
    assert train_vocabulary(sentences(), vocab_size=400).vocab_size == 400


def test_a_size_that_the_corpus_cannot_fill_is_reported() -> None:
    with pytest.raises(DataError, match="vocab_size is 5000, but this corpus has only enough") as caught:
        train_vocabulary(sentences(), vocab_size=5000)
    check_sentence(caught.value)
    reachable = int(re.findall(r"at most (\d+)", str(caught.value))[0])
    assert train_vocabulary(sentences(), vocab_size=reachable).vocab_size == reachable


def test_a_size_below_the_alphabet_is_reported() -> None:
    with pytest.raises(DataError, match="vocab_size is 300, but the special tokens, 256 bytes and") as caught:
        train_vocabulary(sentences(), vocab_size=300)
    check_sentence(caught.value)
    least = int(re.findall(r"alone need (\d+)", str(caught.value))[0])
    assert train_vocabulary(sentences(), vocab_size=least).vocab_size == least


def test_a_size_is_chosen_from_the_corpus() -> None:
    assert suggest_size(700_000, 350) == 10_000
    assert suggest_size(10, 300) == 500
    assert suggest_size(10**9, 400) == 37_000
    assert suggest_size(1000, 3260) == 6260  # many characters, as in Chinese
    assert train_vocabulary(sentences()).vocab_size <= 500  # fewer are accepted when there are no more merges
    assert train_vocabulary([]).vocab_size == 4 + 256 + 1


def test_the_same_lines_give_the_same_vocabulary() -> None:
    def lines() -> Iterator[str]:
        yield from sentences()

    assert (
        train_vocabulary(sentences()).to_json()
        == train_vocabulary(lines()).to_json()
        == train_vocabulary(tuple(sentences())).to_json()
    )


def test_ties_among_rare_characters_are_not_broken_at_random() -> None:
    tied = [chr(0x4E00 + i) * 2 for i in range(2000)] + ["abcdefg " * 10_000]
    assert len({train_vocabulary(tied).to_json() for _ in range(3)}) == 1


def test_rare_characters_are_spelled_in_bytes() -> None:
    tokenizer = train_vocabulary([*sentences() * 20, "ж", "語 ツ"])
    assert not {"ж", "語", "ツ"} & set(pieces_of(tokenizer))
    assert tokenizer.decode(tokenizer.encode("ж語ツ")) == "ж語ツ"


def test_what_was_seen_once_is_not_learned() -> None:
    tokenizer = train_vocabulary([*sentences(), "Donaudampfschiff"])
    assert len(tokenizer.encode("Donaudampfschiff")) > 5
    assert tokenizer.pieces(tokenizer.encode("Katze")) == ["▁Katze"]


def test_pieces_do_not_mix_words_with_punctuation_digits_or_spaces() -> None:
    learned = [piece.removeprefix("▁") for piece in pieces_of(train_vocabulary(sentences() * 3))]
    assert {"dog", "Katze", "中国", "...", "'t", "L'", "qu'"} <= set(learned)
    for piece in learned:
        assert "▁" not in piece
        clitic = re.fullmatch(r"\w{1,2}'|'\w{1,2}", piece)
        assert clitic or re.fullmatch(r"\d|[^\W\d]*|([^\w\s])\1*", piece), piece


def test_scripts_without_spaces_learn_no_sentences() -> None:
    line = "的一是不了人我在有他这中大来上国和地到以说时要就出会可也你对生能而子那得于着下自之年"
    tokenizer = train_vocabulary([line] * 50)
    assert max(map(len, pieces_of(tokenizer))) <= 16
    assert set(line) <= set(pieces_of(tokenizer))


def test_extra_special_tokens_have_ids_of_their_own() -> None:
    tokenizer = train_vocabulary(sentences(), vocab_size=400, extra=["<mask>"])
    assert (tokenizer.mask_id, tokenizer.vocab_size) == (4, 400)
    assert tokenizer.decode([4, *tokenizer.encode("<mask> 我")]) == "<mask> 我"


@pytest.mark.timeout(120)
def test_long_runs_take_no_long_time() -> None:
    runs = [
        "".join(chr(97 + i * i * 7 % 26) for i in range(300_000)),
        "." * 300_000,
        "\ue000" * 300_000,
        "我" * 300_000,
    ]
    tokenizer = train_vocabulary(runs)
    for run in runs:
        assert tokenizer.decode(tokenizer.encode(run)) == run
