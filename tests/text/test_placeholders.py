"""What is a placeholder and what is not, and texts that come back as they were."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.text import train_vocabulary
from heedful.text.placeholders import VOCABULARY_SLOTS, Template, differing_numbers, find_placeholders, mask_pair

FOUND = {
    "Hello {name}, {{x}} and {{ y }}": ["{name}", "{{x}}", "{{ y }}"],
    "{0:.2f} of {} in ${HOME}, #{a}, %{b}, {n, number}": ["{0:.2f}", "{}", "${HOME}", "#{a}", "%{b}", "{n, number}"],
    "{% if x %} text {% endif %}": ["{% if x %}", "{% endif %}"],
    "%s took %5.2f s of %(total)d, %1$s": ["%s", "%5.2f", "%(total)d", "%1$s"],
    "%d%% done, %ds left, %1 of %n": ["%d%%", "%d", "%1", "%n"],
    "set $PATH and $var_2": ["$PATH", "$var_2"],
    "a <b>bold</b> word<br/> and <a href='x y'>a link</a>": ["<b>", "</b>", "<br/>", "<a href='x y'>", "</a>"],
    "Fish &amp; chips &#169; &#x20AC;": ["&amp;", "&#169;", "&#x20AC;"],
    "See https://example.org/a?b=c. Or (www.example.org)!": ["https://example.org/a?b=c", "www.example.org"],
    "Mail bob.smith+x@mail.example.org, please.": ["bob.smith+x@mail.example.org"],
    "{a}/{b} and <b>{name}</b>": ["{a}/{b}", "<b>{name}</b>"],  # they stay together
    "<b>one</b><i>two</i>": ["<b>", "</b>", "<i>", "</i>"],
    "看https://example.org。": ["https://example.org"],
}
NOT_FOUND = [
    "It costs $5, or 5 $.",
    "I am 100% sure, 50 % of you too, 3% discount.",
    "a < b and c > d, x<y, I <3 you, 1<2>3",
    "AT&T, R&D; this & that; Q&A",
    "{ not one } and {not one}",
    "a @ b, @name, C# and F#",
    "e.g. this: that // and so on",
    "plain text",
]


@pytest.mark.parametrize("text", list(FOUND))
def test_what_is_a_placeholder(text: str) -> None:
    assert [text[placeholder.start : placeholder.end] for placeholder in find_placeholders(text)] == FOUND[text]
    template = Template.of(text)
    assert template.originals == tuple(FOUND[text])
    assert template.restore(template.text) == text


@pytest.mark.parametrize("text", NOT_FOUND)
def test_what_is_none(text: str) -> None:
    assert Template.of(text) == Template(text)


def test_a_closing_tag_knows_its_opening_tag() -> None:
    assert Template.of("<b>a <i>b</i> c</b> <br> <p>d").partners == (-1, -1, 1, 0, -1, -1)
    assert Template.of("<b>a <i>b</b> c</i>").partners == (-1, -1, 0, -1)  # tags that cross


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from([*"{}%$<>&;/ ab1.,@:", "<b>", "</b>", "{x}", "%s", "http://a.b", *VOCABULARY_SLOTS[:2]]))
)
def test_any_text_comes_back(parts: list[str]) -> None:
    text = "".join(parts)
    template = Template.of(text)
    assert template.restore(template.text) == text
    middle = len(template.text) // 2
    halves = [template.part(half) for half in (template.text[:middle], template.text[middle:])]
    assert "".join(half.restore(half.text) for half in halves) == text


def test_pairs_with_the_same_placeholders_are_masked() -> None:
    masked = mask_pair("Copy {a} to {b}.", "Nach {b} kopiere {a}.")
    assert masked is not None
    source, target = masked
    first, second = (character for character in source if character in VOCABULARY_SLOTS)
    assert source == f"Copy {first} to {second}." and target == f"Nach {second} kopiere {first}."
    assert mask_pair("Copy {a}.", "Kopiere {b}.") is None
    assert mask_pair("Copy {a}.", "Kopiere {a} {a}.") is None
    assert mask_pair("Copy.", "Kopiere.") is None
    twice = mask_pair("%s or %s", "%s oder %s")
    assert twice is not None and len(set(twice[0]) & set(VOCABULARY_SLOTS)) == 2
    used = {mask_pair(f"{word} {{x}}", f"{word} {{x}}")[0][-1] for word in map(str, range(200))}
    assert used == set(VOCABULARY_SLOTS)  # all slots are learned


def test_a_vocabulary_with_slots_keeps_them_whole() -> None:
    lines = [f"copy {slot} to ({slot})" for slot in VOCABULARY_SLOTS[:2]] * 5
    tokenizer = train_vocabulary(lines, slots=True)
    for slot in VOCABULARY_SLOTS:
        pieces = tokenizer.pieces(tokenizer.encode(f"copy {slot}{slot} to ({slot})"))
        assert pieces.count(slot) == 3 and "▁" in pieces
        assert tokenizer.decode(tokenizer.encode(f"copy {slot} to ({slot})")) == f"copy {slot} to ({slot})"
    assert train_vocabulary(lines).to_json() != tokenizer.to_json()


def test_numbers_may_change_their_separators_only() -> None:
    assert differing_numbers("3.5 of 1,000 in 2024", "3,5 von 1.000 in 2024") == []
    assert differing_numbers("12 of 12", "12 von zwölf") == ["12"]
    assert differing_numbers("room 3.5", "Raum 3.6") == ["3.5"]
    assert differing_numbers("٣ books", "3 Bücher") == []
