"""Text -> ids -> text is exact, and user text never turns into a special token."""

import json
import unicodedata
from pathlib import Path

import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers

from heedful.errors import FolderError, HeedfulError
from heedful.text import Specials, Tokenizer, normalize_function, train_vocabulary

from .corpus import sentences

NAMES = ["<pad>", "<unk>", "<s>", "</s>"]
BLANKS = "\t\n\x0b\x0c\r \x85\u2028\u2029"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_vocabulary(sentences())


@pytest.fixture(scope="module")
def lower() -> Tokenizer:
    return train_vocabulary(sentences(), lowercase=True)


def expected(text: str) -> str:
    """Normalisation as the documentation states it, written without the library."""
    text = unicodedata.normalize("NFC", text)
    for blank in BLANKS:
        text = text.replace(blank, " ")
    while "  " in text:
        text = text.replace("  ", " ")
    return text.strip(" ").replace("▁", "_")


def test_special_ids_of_a_learned_vocabulary(tokenizer: Tokenizer) -> None:
    assert (tokenizer.pad_id, tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id) == (0, 1, 2, 3)
    assert tokenizer.mask_id is None
    assert tokenizer.specials == Specials(pad=0, bos=2, eos=3)
    assert tokenizer.pieces(range(4)) == NAMES


# Characters that the Unicode tables of Python and of the library know alike: neither is newer for assigned ones.
TEXT = st.text(st.characters(exclude_categories=["Cs", "Cn"]), max_size=60)


@settings(max_examples=300, deadline=None)
@given(TEXT)
@example("我爱中国")
@example("👨‍👩‍👧 🇩🇪 👍🏽")
@example("e\u0301\u0301 \u0301 a\u0300\u0323")
@example(" \u00a0a\u202f! \u3000")
@example("a▁b ▁")
@example("\x00\x01\x7f\ufffd\ue000\U0010ffff")
@example("Ω \u212a \u1e9b\u0323 각")
@example("")
def test_every_text_round_trips(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == tokenizer.normalize(text) == expected(text)
    assert tokenizer.unk_id not in ids
    assert all(4 <= i < tokenizer.vocab_size for i in ids)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([*"aAbé </s>pdunk▁'’.0x41\u0301\u00a0\n我😀", *NAMES, "<0x41>", "<0xE6>"])))
def test_text_that_looks_like_tokens_round_trips(tokenizer: Tokenizer, parts: list[str]) -> None:
    text = "".join(parts)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == expected(text)
    assert not set(ids) & {0, 1, 2, 3}


@settings(max_examples=100, deadline=None)
@given(TEXT)
@example("İstanbul ΑΣ Σ \u212b A\u030a")
def test_lower_case_round_trips_and_normalising_twice_changes_nothing(lower: Tokenizer, text: str) -> None:
    once = lower.normalize(text)
    assert lower.decode(lower.encode(text)) == once == lower.normalize(once) == normalize_function(True)(text)


def test_lower_case_folds(lower: Tokenizer, tokenizer: Tokenizer) -> None:
    assert lower.encode("Der HUND") == lower.encode("der hund")
    assert tokenizer.encode("Der HUND") != tokenizer.encode("der hund")


@pytest.mark.parametrize("name", [*NAMES, "<0x41>"])
def test_literal_special_tokens_are_text(tokenizer: Tokenizer, name: str) -> None:
    again = Tokenizer.from_json(tokenizer.to_json())  # the library does not keep this in the JSON
    for some in (tokenizer, again):
        for text in (name, f"a{name}b", f"a {name} b", name * 3):
            ids = some.encode(text)
            assert not set(ids) & {0, 1, 2, 3}
            assert some.encode_batch([text]) == [ids]
            assert some.decode(ids) == text


def test_special_tokens_in_the_corpus_are_not_learned_as_text() -> None:
    tokenizer = train_vocabulary([*sentences(), *["<s> a </s> <0x41> <pad>"] * 500])
    assert tokenizer.decode(tokenizer.encode("<0x41></s>")) == "<0x41></s>"
    assert not set(tokenizer.encode("<s></s><pad><unk>")) & {0, 1, 2, 3}


def test_batches_equal_single_calls(tokenizer: Tokenizer) -> None:
    texts = [*sentences()[:50], "", "😀", "a  b\u2028c"]
    ids = tokenizer.encode_batch(texts)
    assert ids == [tokenizer.encode(text) for text in texts]
    assert tokenizer.decode_batch(ids) == [tokenizer.decode(row) for row in ids]


def test_decoding_skips_specials_and_stays_on_one_line(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("The dog")
    assert tokenizer.decode([2, *ids, 3, 0, 0]) == "The dog"
    newline, carriage_return = (
        tokenizer.pieces(range(300)).index("<0x0A>"),
        tokenizer.pieces(range(300)).index("<0x0D>"),
    )
    assert tokenizer.decode([*ids, newline, carriage_return, *ids]) == "The dog   The dog"
    assert tokenizer.decode_batch([[*ids, newline, *ids]]) == ["The dog  The dog"]
    assert "\ufffd" in tokenizer.decode([*ids, 4 + 0xE6])  # half a character


def test_lone_surrogates_become_replacement_characters(tokenizer: Tokenizer) -> None:
    for text in ("a\ud800b", "\udce9"):  # what Python makes of arguments that are not UTF-8
        fixed = tokenizer.normalize(text)
        assert "\ufffd" in fixed
        assert tokenizer.decode(tokenizer.encode(text)) == fixed
        assert tokenizer.encode_batch([text]) == [tokenizer.encode(text)]


def test_pieces_are_one_an_id_and_mark_word_starts(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("The dog sees the house. 😀")
    pieces = tokenizer.pieces(ids)
    assert len(pieces) == len(ids)
    assert pieces[:2] == ["▁The", "▁dog"]
    assert pieces[-4:] == ["<0xF0>", "<0x9F>", "<0x98>", "<0x80>"]
    assert tokenizer.pieces([10**6]) == ["<1000000>"]


def test_save_and_load(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.to_json() == tokenizer.to_json()
    assert loaded.encode_batch(sentences()) == tokenizer.encode_batch(sentences())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is damaged"),
        (b"{}", "is damaged"),
        (b'{"version": "1.0"', "is damaged"),
        (b"\xff\xfe", "not UTF-8"),
        (None, "does not exist"),
    ],
)
def test_damaged_files_are_reported(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(FolderError) as caught:
        Tokenizer.load(path)
    assert words in str(caught.value) and str(path) in str(caught.value)
    check_sentence(caught.value)


def test_a_half_written_file_is_reported(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(tokenizer.to_json()[:-100], encoding="utf-8")
    with pytest.raises(FolderError, match="is damaged"):
        Tokenizer.load(path)
    with pytest.raises(FolderError, match="is not a plain file"):
        Tokenizer.load(tmp_path)
    with pytest.raises(FolderError, match="cannot be written"):
        tokenizer.save(tmp_path)


def foreign(vocabulary: list[str]) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token="<unk>"))


def test_foreign_vocabularies_keep_their_ids() -> None:
    marian = Tokenizer(foreign(["</s>", "<unk>", "a", "<pad>"]))
    assert (marian.eos_id, marian.unk_id, marian.pad_id, marian.bos_id) == (0, 1, 3, 3)
    bert = Tokenizer(foreign(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    assert (bert.pad_id, bert.unk_id, bert.bos_id, bert.eos_id, bert.mask_id) == (0, 1, 2, 3, 4)
    named = Tokenizer(foreign(["x", "y", "<pad>", "<unk>", "</s>"]), ids={"bos": 1})
    assert (named.bos_id, named.pad_id, named.vocab_size) == (1, 2, 5)


def test_a_vocabulary_without_an_end_is_refused() -> None:
    text = foreign(["<pad>", "<unk>", "a"]).to_str()
    with pytest.raises(FolderError, match="no token for eos") as caught:
        Tokenizer.from_json(text)
    check_sentence(caught.value)
    with pytest.raises(FolderError, match="no token for eos"):
        _ = Tokenizer(tokenizers.Tokenizer.from_str(text)).eos_id


def test_padding_and_truncation_of_foreign_files_are_switched_off() -> None:
    inner = foreign(["<pad>", "<unk>", "<s>", "</s>"])
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.enable_truncation(1)
    inner.enable_padding(length=8)
    assert json.loads(inner.to_str())["padding"] is not None
    assert Tokenizer(inner).encode_batch(["<s> </s> <s>", ""]) == [[2, 3, 2], []]


def check_sentence(error: HeedfulError) -> None:
    message = str(error)
    assert message.endswith(".") and ". " not in message and "\n" not in message
