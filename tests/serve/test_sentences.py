from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.serve.sentences import rebuilt, sentences


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
def test_sentences(text, expected):
    assert [each.text for each in sentences(text)] == expected


@given(st.text(alphabet=st.sampled_from("aB .!?\n\t。…\"')3")))
def test_places_are_true_and_nothing_is_lost(text):
    found = sentences(text)
    for each in found:
        assert text[each.start : each.end] == each.text == each.text.strip() != ""
    assert all(before.end <= after.start for before, after in pairwise(found))
    covered = "".join(each.text for each in found)
    assert "".join(covered.split()) == "".join(text.split())


@given(st.text(alphabet=st.sampled_from("aB .!?\n")))
def test_a_text_around_its_own_sentences_is_itself(text):
    found = sentences(text)
    assert rebuilt(text, found, [each.text for each in found]) == text


def test_a_space_comes_where_the_other_script_needs_none():
    found = sentences("犬。猫。")
    assert rebuilt("犬。猫。", found, ["A dog.", "A cat."]) == "A dog. A cat."
    assert rebuilt("犬。猫。", found, ["狗。", "貓。"]) == "狗。貓。"
