"""Vocabularies of plain text give it back to the byte."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.errors import DataError
from heedful.text import Tokenizer, train_plain_vocabulary

TEXT = [
    "To be, or not to be:\n  that is the question.\n",
    "Whether 'tis nobler in the mind to suffer\n" * 3,
    "Ω 你好 🙂\n" * 2,
]
KINDS = ["bpe", "bytes", "characters"]
VOCABULARIES = {kind: train_plain_vocabulary(TEXT, kind) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=150, deadline=None)
@given(text=st.text())
def test_text_comes_back_as_it_was(kind: str, text: str) -> None:
    tokenizer = VOCABULARIES[kind]
    assert tokenizer.decode_text(tokenizer.encode(text)) == text


@pytest.mark.parametrize("kind", KINDS)
def test_a_vocabulary_survives_its_file(kind: str) -> None:
    tokenizer = VOCABULARIES[kind]
    again = Tokenizer.from_json(tokenizer.to_json())
    text = "To be,\n\tor </s> 🙂 not"
    assert again.encode(text) == tokenizer.encode(text)
    assert again.decode_text(again.encode(text)) == text
    assert train_plain_vocabulary(TEXT, kind).to_json() == tokenizer.to_json(), (
        "the same text gives the same vocabulary"
    )


def test_kinds_are_what_they_say() -> None:
    assert VOCABULARIES["bytes"].vocab_size == 4 + 256
    assert len(VOCABULARIES["bytes"].encode("né")) == 3
    assert len(VOCABULARIES["characters"].encode("to be\n你")) == 7
    assert len(VOCABULARIES["bpe"].encode(TEXT[1])) < len(TEXT[1]) / 2


def test_extra_tokens_case_and_sizes() -> None:
    tokenizer = train_plain_vocabulary(TEXT, "characters", lowercase=True, extra=["<mask>"])
    assert tokenizer.mask_id == 4
    assert tokenizer.decode_text(tokenizer.encode("TO BE")) == "to be"
    assert train_plain_vocabulary(TEXT, "bpe", 270).vocab_size == 270
    with pytest.raises(DataError, match=r"text\.vocab_size is 100"):
        train_plain_vocabulary(TEXT, "bpe", 100)
    with pytest.raises(DataError, match="enough repetition"):
        train_plain_vocabulary(TEXT, "bpe", 5000)
    with pytest.raises(DataError, match="as many tokens as there are bytes"):
        train_plain_vocabulary(TEXT, "bytes", 300)
