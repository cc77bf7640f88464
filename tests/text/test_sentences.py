from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.text.text_sentences import ABBREVIATION, replace_sentences, split_sentences


@pytest.mark.parametrize(
    "text, expected",
    [
        ("The dog sleeps. The man reads.", ["The dog sleeps.", "The man reads."]),
        (
            "Dr. Smith lives at 5 St. James St. in London. He is old.",
            ["Dr. Smith lives at 5 St. James St. in London.", "He is old."],
        ),
        ("Am 3. Oktober 1990. Danach nicht.", ["Am 3. Oktober 1990.", "Danach nicht."]),
        ('"Why?" he asked. "I see!"', ['"Why?"', "he asked.", '"I see!"']),
        ("One line\nanother line", ["One line", "another line"]),
        ("Version 3.14 is out... and works.", ["Version 3.14 is out...", "and works."]),
        ("犬は眠る。男は本を読む。", ["犬は眠る。", "男は本を読む。"]),
        ("  leading and trailing  \n\n", ["leading and trailing"]),
        ("z.B. hier und e.g. there", ["z.B. hier und e.g. there"]),
        ("", []),
        (" \n ", []),
    ],
)
def test_texts_are_split_into_sentences(text, expected):
    assert [split_sentence.text for split_sentence in split_sentences(text)] == expected


@given(st.text(alphabet=st.sampled_from("aB .!?\n\t。…\"')3")))
def test_offsets_are_exact_and_no_text_is_lost(text):
    result = split_sentences(text)
    for item in result:
        assert text[item.start : item.end] == item.text == item.text.strip() != ""
    assert all(before.end <= after.start for before, after in pairwise(result))
    covered = "".join(value.text for value in result)
    assert "".join(covered.split()) == "".join(text.split())


@given(st.text(alphabet=st.sampled_from("aB .!?\n")))
def test_a_text_around_its_own_sentences_is_itself(text):
    result = split_sentences(text)
    whole, starts = replace_sentences(text, result, [item.text for item in result])
    assert (whole, starts) == (text, [value.start for value in result])


def test_a_space_comes_where_the_other_script_needs_none():
    result = split_sentences("犬。猫。")
    assert replace_sentences("犬。猫。", result, ["A dog.", "A cat."]) == ("A dog. A cat.", [0, 7])
    assert replace_sentences("犬。猫。", result, ["狗。", "貓。"]) == ("狗。貓。", [0, 2])


def plain(text: str) -> list[str]:
    """Sentences of a Latin text, looked for in the plainest way."""
    result = []
    for line in text.split("\n"):
        start = at = 0
        while at < len(line):
            marks = at
            while marks < len(line) and line[marks] in ".!?…":
                marks += 1
            if marks == at:
                at += 1
                continue
            end = marks
            while end < len(line) and line[end] in "\"'»«”’)]":
                end += 1
            following = line[end:].lstrip()
            ends = following and len(following) < len(line) - end
            if line[at:end] == "." and (following[:1].islower() or ABBREVIATION.search(line[:end])):
                ends = False
            if ends:
                result.append(line[start:end])
                start = end
            at = end if ends else marks
        result.append(line[start:])
    return [item.strip() for item in result if item.strip()]


PIECES = [*'aB .!?)"(\n\t', "  ", "...", "Dr", "prof", "z.B", "e.g", "12", "123", "Corp", "x.y", "usw."]


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_sentences_are_those_of_a_plain_search(text):
    assert [split_sentence.text for split_sentence in split_sentences(text)] == plain(text)


@pytest.mark.parametrize(
    "unit", [". ", ".", "A. B. ", "1. ", "The dog sleeps. ", "! ? ", "。", "你好。", '." ', "a\n", " "]
)
def test_no_text_takes_the_square_of_its_length(unit):
    text = (unit * 20_000)[:20_000]
    began = time.thread_time()
    result = split_sentences(text)
    replace_sentences(text, result, ["x。"] * len(result))
    assert time.thread_time() - began < 1
