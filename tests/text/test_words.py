"""Which word of a text a token belongs to, whatever white space the text holds."""

from __future__ import annotations

from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.text import NO_WORD, Tokenizer, train_plain_vocabulary, train_vocabulary, words_at, words_of_spans
from heedful.text.words import covered_words, words

LINES = ["the old dog sleeps", "the dog reads a book", "der alte Hund schläft, der Hund liest"] * 3
BLANKS = " \t\x0b\x1c\x1f\x85\u00a0\u1680\u2003\u2028\u3000"
TEXTS = st.lists(st.sampled_from([*BLANKS, " ", "  ", "dog", "the", "schläft", "é", "我", "🙂", "."]), max_size=10).map(
    "".join
)
VOCABULARIES = {
    "learned": train_vocabulary(LINES),
    "bytes": train_plain_vocabulary(LINES, kind="bytes"),
    "characters": train_plain_vocabulary(LINES, kind="characters"),
}


@pytest.mark.parametrize("kind", list(VOCABULARIES))
@given(text=TEXTS)
@settings(max_examples=60, deadline=None)
def test_tokens_are_grouped_into_words(kind: str, text: str) -> None:
    tokenizer = VOCABULARIES[kind]
    ids = tokenizer.encode(text)
    read = words_of_spans(text, tokenizer.spans(text))
    assert len(read) == len(ids)
    assert grouped(tokenizer, ids, read) == separated(text)
    decoded, spans = tokenizer.decode_spans(ids)
    assert decoded == tokenizer.decode(ids)
    assert grouped(tokenizer, ids, words_of_spans(decoded, spans)) == separated(decoded) == separated(text)


def separated(text: str) -> list[str]:
    """White space separates words, and every Chinese character is one."""
    return text.replace("我", " 我 ").split()


def grouped(tokenizer: Tokenizer, ids: list[int], words: list[int]) -> list[str]:
    """The texts of the tokens of each word, which have to stand in order."""
    pairs = [pair for pair in zip(words, ids, strict=True) if pair[0] != NO_WORD]
    assert [word for word, _ in pairs] == sorted(word for word, _ in pairs)
    groups = [(word, [id for _, id in group]) for word, group in groupby(pairs, key=lambda pair: pair[0])]
    assert [word for word, _ in groups] == list(range(len(groups)))
    return [tokenizer.decode(own).strip() for _, own in groups]


def test_white_space_belongs_to_the_word_after_it() -> None:
    assert words_of_spans("  a  b ", [(0, 1), (1, 2), (2, 3), (3, 5), (5, 6), (6, 7)]) == [0, 0, 0, 1, 1, NO_WORD]
    assert words_of_spans("a b", [(0, 3), (3, 3), (0, 0)]) == [1, 1, 0]
    assert words_of_spans(" \u00a0", [(0, 2)]) == [NO_WORD]


def test_places_are_in_a_word_or_before_one() -> None:
    assert words_at(" ab\u00a0c ", [0, 1, 2, 3, 4, 5, 6]) == [0, 0, 0, 1, 1, 2, 2]


def test_every_character_of_a_script_without_spaces_is_a_word() -> None:
    assert words("我们 go。ไทย") == ["我", "们", "go", "。", "ไ", "ท", "ย"]
    assert words("が\u3099 กำ") == ["が\u3099", "กำ"[0], "กำ"[1:]]
    assert covered_words("我们 go", [(0, 2), (2, 5)]) == {1: [0, 1], 2: [2]}


def test_no_ids_are_no_text() -> None:
    assert VOCABULARIES["learned"].decode_spans([]) == ("", [])
