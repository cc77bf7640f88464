"""A SentencePiece model with a table of ids, as a tokeniser of ours."""

from __future__ import annotations

import json
import re

import pytest

from heedful.errors import FolderError
from heedful.text import NO_WORD, Tokenizer, words_of_spans
from heedful.text.sentencepiece_models import SentencePieceTokenizer
from heedful.text.words import words

from .makers import TEXTS, spm, table

TABLE = table(spm(0))


@pytest.fixture(scope="module")
def tokenizer() -> SentencePieceTokenizer:
    return SentencePieceTokenizer(spm(0), TABLE)


def test_the_json_says_everything(tokenizer: SentencePieceTokenizer) -> None:
    again = Tokenizer.from_json(tokenizer.to_json())
    assert isinstance(again, SentencePieceTokenizer)
    assert (again.model, again.table) == (spm(0), TABLE)
    assert again.encode_batch(TEXTS) == tokenizer.encode_batch(TEXTS)
    assert again.to_json() == tokenizer.to_json()
    assert Tokenizer.from_json(tokenizer.to_json(), ids={"bos": 7}).bos_id == 7


def test_text_of_known_pieces_comes_back(tokenizer: SentencePieceTokenizer) -> None:
    for text in ("A man", "the town", "Two young children"):
        assert tokenizer.decode(tokenizer.encode(text)) == tokenizer.normalize(text) == text
    assert tokenizer.normalize("  A \n man ") == "A man"
    assert tokenizer.encode("") == tokenizer.encode("  ") == []


def test_what_is_not_in_the_table_is_unknown(tokenizer: SentencePieceTokenizer) -> None:
    assert tokenizer.unk_id in tokenizer.encode("日本")
    assert tokenizer.pieces([0, 10**6]) == ["</s>", "<1000000>"]
    assert tokenizer.decode([tokenizer.eos_id, 10**6, tokenizer.pad_id]) == ""
    assert tokenizer.encode("\ud800") == tokenizer.encode("\ufffd")  # a lone surrogate is no text


@pytest.mark.parametrize(
    "text", ["A man 日本 rides.", ">>fr<< A\u00a0man", "  Two\u200b \x0bmen ", "½ the\u3000town ¨", ""]
)
def test_tokens_belong_to_the_words_of_the_given_text(tokenizer: SentencePieceTokenizer, text: str) -> None:
    spans = tokenizer.spans(text)
    assert len(spans) == len(tokenizer.encode(text))
    assert sorted(set(words_of_spans(text, spans)) - {NO_WORD}) == list(range(len(words(text))))
    decoded, spans = tokenizer.decode_spans(tokenizer.encode(text))
    assert sorted(set(words_of_spans(decoded, spans)) - {NO_WORD}) == list(range(len(words(decoded))))


def test_parts_are_found_by_their_names(tokenizer: SentencePieceTokenizer) -> None:
    assert (tokenizer.eos_id, tokenizer.unk_id, tokenizer.pad_id) == (0, 1, len(TABLE) - 1)
    assert tokenizer.bos_id == tokenizer.pad_id  # Marian decodes from pad
    assert tokenizer.vocab_size == len(TABLE)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(sentencepiece="@@"), "is damaged"),
        (lambda c: c.update(sentencepiece="AAAA"), "is damaged"),
        (lambda c: c.update(sentencepiece=5), "is damaged"),
        (lambda c: c.update(vocab=[1, 2]), "no table of pieces"),
        (lambda c: c.update(vocab={"a": 1.5}), "'a' has the id 1.5"),
        (lambda c: c.pop("vocab"), "is damaged"),
    ],
)
def test_a_damaged_model_is_one_sentence(tokenizer: SentencePieceTokenizer, change, message: str) -> None:
    content = json.loads(tokenizer.to_json())
    change(content)
    with pytest.raises(FolderError, match=f"x.json.*{re.escape(message)}") as caught:
        Tokenizer.from_json(json.dumps(content, separators=(",", ":")), where="x.json")
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)
