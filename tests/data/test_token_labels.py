"""Windows of long texts, and the tokens of words and answers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heedful.data.token_labels import UNLABELED, AnswerFormat, TaggingFormat, central_window, encode_words, windows
from heedful.formats.conll import TaggedSentence
from heedful.formats.squad import Question
from heedful.text import train_vocabulary

CONTEXT = "The old dog sleeps in the green garden, and the cat reads a letter."
TOKENIZER = train_vocabulary([CONTEXT, "The cat sleeps.", "a dog reads", "xylophones are played"] * 3)


@given(st.integers(0, 300), st.integers(2, 60))
def test_windows_cover_every_token_with_context(length: int, size: int) -> None:
    parts = windows(list(range(length)), size)
    assert all(len(part.ids) <= size for part in parts)
    assert all(part.ids == list(range(part.start, part.start + len(part.ids))) for part in parts)
    assert {token for part in parts for token in part.ids} == set(range(length))
    assert len(parts) == 1 or all(len(part.ids) == size for part in parts)
    for token in range(length):
        assert token in parts[central_window(token, parts)].ids


def test_a_tag_is_the_label_of_the_first_token_of_its_word() -> None:
    words = ("xylophones", "sleeps", "!")
    ids, first = encode_words(words, TOKENIZER)
    assert ids == TOKENIZER.encode("xylophones sleeps !")
    (row,) = TaggingFormat().encode(TaggedSentence(words, ("N", "V", "new")), ["N", "V"], TOKENIZER, 100)
    assert [row.labels[token] for token in first if token is not None] == [0, 1, UNLABELED]
    assert sum(label != UNLABELED for label in row.labels) == 2
    parts = TaggingFormat().encode(TaggedSentence(words * 20, ("N", "V", "N") * 20), ["N", "V"], TOKENIZER, 20)
    assert len(parts) > 1
    assert all(len(part.labels) == len(part.first) <= 18 for part in parts)


def test_an_answer_is_found_in_every_window_that_holds_all_of_it() -> None:
    start = CONTEXT.index("green garden")
    question = Question("1", "Where?", CONTEXT, ((start, "green garden"),))
    seen = 0
    for length in (12, 16, 64):
        for row in AnswerFormat().encode(question, ["start", "end"], TOKENIZER, length):
            framed = [0, *row.first, 0, *row.second, 0]
            assert len(framed) <= length
            a, b = (int(place) for place in row.labels)
            if (a, b) != (0, 0):
                assert TOKENIZER.decode(framed[a : b + 1]).strip() == "green garden"
                seen += 1
    assert seen >= 2
    for row in AnswerFormat().encode(Question("2", "Who?", CONTEXT), [], TOKENIZER, 16):
        assert list(row.labels) == [0, 0]
