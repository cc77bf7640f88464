"""Annotated terms: what is inserted, and which part of the plain text a token belongs to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.text import train_vocabulary
from heedful.text.term_annotation import TERM_MARKS, AnnotatedText, TermAnnotation, are_forms, has_term_marks

READABLE = str.maketrans(dict(zip(TERM_MARKS, "<|>", strict=True)))


def test_a_term_is_followed_by_its_translation() -> None:
    annotated = AnnotatedText.of("A dog, (cat)s.", [TermAnnotation(2, 5, "Hund"), TermAnnotation(8, 11, "Katze")])
    assert annotated.text.translate(READABLE) == "A < dog | Hund >, ( < cat | Katze >)s."
    assert AnnotatedText.of("A dog", []).text == "A dog"


@given(st.text(alphabet="ab ,", min_size=1, max_size=12), st.data())
def test_tokens_belong_to_the_plain_text(plain: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(plain)), max_size=4)))
    spans = list(zip(cuts[::2], cuts[1::2], strict=False))
    annotated = AnnotatedText.of(plain, [TermAnnotation(start, end, "x y") for start, end in spans])
    characters = annotated.plain_spans([(at, at + 1) for at in range(len(annotated.text))])
    single = [plain[start:end] for start, end in characters if (start, end) not in spans]
    rest = [letter for at, letter in enumerate(plain) if not any(start <= at < end for start, end in spans)]
    assert [letter for letter in single if len(letter) == 1] != [] or not rest
    for (start, end), letter in zip(characters, annotated.text, strict=True):
        assert 0 <= start < end <= len(plain)
        assert plain[start:end] == letter or any(a <= start < end <= b for a, b in spans)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [("Hund", "Hundes", True), ("alt", "ALTEN", True), ("Buch", "Bücher", True), ("Hund", "Katze", False),
     ("der", "den", False), ("Haus", "Hausaufgaben", False)],
)  # fmt: skip
def test_forms_of_a_word(one: str, other: str, same: bool) -> None:
    assert are_forms(one, other) == are_forms(other, one) == same


def test_a_vocabulary_has_marks_if_it_is_asked_to() -> None:
    lines = ["the dog sleeps", "der Hund schläft"] * 9
    assert not has_term_marks(train_vocabulary(lines))
    tokenizer = train_vocabulary(lines, characters=TERM_MARKS)
    assert has_term_marks(tokenizer)
    text = AnnotatedText.of("the dog", [TermAnnotation(4, 7, "Hund")]).text
    assert tokenizer.decode(tokenizer.encode(text)) == text
