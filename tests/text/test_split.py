"""Long lines: every part fits, nothing is lost, and the cuts are where a reader would make them."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.text import split_long


def at_most(limit: int) -> Callable[[str], bool]:
    return lambda text: len(text) <= limit


@given(st.text(st.sampled_from("ab.,;!。，我 \n\u00a0\"'?)"), max_size=80), st.integers(1, 20))
def test_parts_fit_and_join_to_the_text(text: str, limit: int) -> None:
    parts = split_long(text, at_most(limit))
    assert "".join(parts) == text
    assert all(len(part) <= limit for part in parts)
    assert text == "" or all(parts)


@given(st.text(max_size=60), st.integers(1, 20))
def test_any_text_joins_again(text: str, limit: int) -> None:
    parts = split_long(text, lambda part: len(part.encode("utf-8", "surrogatepass")) <= limit)
    assert "".join(parts) == text


@given(st.lists(st.integers(1, 9), min_size=1, max_size=60), st.integers(9, 40))
def test_sentences_are_packed_as_full_as_they_go(lengths: list[int], limit: int) -> None:
    sentences = ["x" * length + ". " for length in lengths]
    limit += 2
    packed = [""]
    for sentence in sentences:
        if len(packed[-1]) + len(sentence) <= limit:
            packed[-1] += sentence
        else:
            packed.append(sentence)
    assert split_long("".join(sentences), at_most(limit)) == packed


@pytest.mark.parametrize(
    ("text", "limit", "parts"),
    [
        ("short", 5, ["short"]),
        ("One two. Three four? Five", 12, ["One two. ", "Three four? ", "Five"]),
        ('He said "No." Then left.', 15, ['He said "No." ', "Then left."]),
        ("first, second; third", 9, ["first, ", "second; ", "third"]),
        ("costs 1,000.50 now", 15, ["costs 1,000.50 ", "now"]),
        ("我爱中国。他也爱。你呢", 5, ["我爱中国。", "他也爱。", "你呢"]),
        ("我爱中国，他也爱", 5, ["我爱中国，", "他也爱"]),
        ("one two three", 8, ["one two ", "three"]),
        ("abcdefgh", 3, ["abc", "def", "gh"]),
        ("e\u0301e\u0301", 3, ["e\u0301", "e\u0301"]),
        ("👍🏽👍🏽", 3, ["👍🏽", "👍🏽"]),
        ("👨‍👩‍👧a", 3, ["👨‍👩‍👧", "a"]),  # longer than the limit, but one character
    ],
)
def test_cuts_are_made_at_the_best_border(text: str, limit: int, parts: list[str]) -> None:
    assert split_long(text, at_most(limit)) == parts


def test_few_texts_are_measured() -> None:
    measured = 0

    def fits(text: str) -> bool:
        nonlocal measured
        measured += len(text)
        return len(text) <= 200

    text = "word " * 20_000
    assert "".join(split_long(text, fits)) == text
    assert measured < 12 * len(text)
