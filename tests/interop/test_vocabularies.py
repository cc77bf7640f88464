"""A vocabulary that is damaged or hostile is refused, or fails in use in one sentence; a server lives on."""

from __future__ import annotations

import base64
import json
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heedful import interop
from heedful.errors import FolderError
from heedful.serve.messages import MessageReader, WorkerTask
from heedful.serve.worker import Worker
from heedful.text import Tokenizer

from .makers import word_pieces
from .own import make
from .test_hostile import check_sentence


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("own") / "model").path


@pytest.fixture
def copy(clean: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(clean, tmp_path / "copy"))


def change_vocabulary(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads((path / "tokenizer.json").read_text())
    change(content)
    (path / "tokenizer.json").write_text(json.dumps(content))


def without_unknown(content: dict[str, Any]) -> None:
    content["model"] |= {"unk_token": "nothing", "byte_fallback": False, "fuse_unk": False}


def panics(content: dict[str, Any]) -> None:
    content["normalizer"] = {"type": "Replace", "pattern": {"Regex": "(x+x+)+y"}, "content": ""}


LONG = "x" * 30


@pytest.mark.parametrize(
    ("change", "reason"), [(without_unknown, "nothing"), (panics, "the tokenizers library panicked")]
)
def test_a_vocabulary_that_fails_in_use_is_reported_in_one_sentence(
    copy: Path, change: Callable[[Any], None], reason: str
) -> None:
    change_vocabulary(copy, change)
    tokenizer = Tokenizer.load(copy / "tokenizer.json")
    with pytest.raises(FolderError, match=rf"tokenizer.json is damaged \(.*{reason}.*\); copy it again") as caught:
        tokenizer.encode_batch(["日本" + LONG])
    check_sentence(caught.value)
    assert LONG not in str(caught.value)  # which a server would write to its log


@pytest.mark.parametrize("change", [without_unknown, panics])
def test_the_worker_of_a_server_survives_a_vocabulary_that_fails(copy: Path, change: Callable[[Any], None]) -> None:
    change_vocabulary(copy, change)
    actual, expected = socket.socketpair()
    with actual, expected:
        worker = Worker(actual, interop.open_folder(copy), "float32")
        worker._handle(WorkerTask(1, {"texts": ["日本" + LONG], "fields": ("text",)}))
        worker._handle(WorkerTask(2, {"texts": [""], "fields": ("text",)}))
        worker._report(worker._steps())
        events = {event.task: event for event in MessageReader()(expected.recv(1 << 16)) if event.task}
    assert events[1].kind == "failed" and "tokenizer.json is damaged" in events[1].value
    assert events[2].kind == "done"


@pytest.mark.parametrize(
    ("family", "requested"),
    [
        ("encoder-decoder", {"texts": ["the town"], "fields": ("text",), "search": {"max_length": 4}}),
        ("decoder", {"prompt": "the town", "n": 1, "max_tokens": 1}),
    ],
)
def test_a_request_whose_answer_cannot_be_decoded_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, requested: dict[str, Any]
) -> None:
    def damaged(self: Tokenizer, ids: object) -> str:
        raise FolderError("tokenizer.json is damaged.")

    actual, expected = socket.socketpair()
    with actual, expected:
        worker = Worker(actual, make(tmp_path / "model", family=family), "float32")
        monkeypatch.setattr(Tokenizer, "decode_text", damaged)
        worker._handle(WorkerTask(1, requested))
        while not worker.workload.idle():
            worker._report(worker._steps())
        events = [event for event in MessageReader()(expected.recv(1 << 16)) if event.task]
    assert [(event.kind, event.value) for event in events] == [("failed", "tokenizer.json is damaged.")]


def replace(content: str, pattern: str = "a", kind: str = "String") -> dict[str, Any]:
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def table(replacement: bytes) -> str:
    """A table as SentencePiece has it: the size of a trie, the trie, texts."""
    return base64.b64encode((4).to_bytes(4, "little") + bytes(4) + replacement + b"\0").decode()


def sequence(steps: list[Any], name: str = "normalizers") -> dict[str, Any]:
    return {"type": "Sequence", name: steps}


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": False}
TWICE = {
    "type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}] * 2,
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}], "special_tokens": {},
}  # fmt: skip
BOMBS: dict[str, tuple[dict[str, Any], str]] = {
    "forty times a -> aa": ({"normalizer": sequence([replace("aa")] * 40)}, "can make a text 1.1e.12 times as long"),
    "nested": ({"normalizer": sequence([sequence([replace("aa")] * 8)] * 5)}, "can make a text"),
    "without types": ({"normalizer": {"normalizers": [{"pattern": "a", "content": "aa"}] * 40}}, "can make a text"),
    "expressions": ({"normalizer": sequence([replace("a", "a|b|", "Regex")] * 40)}, "can make a text"),
    "forms that undo each other": ({"normalizer": sequence([replace("ﷺ", "ا"), {"type": "NFKD"}] * 20)}, "can make"),
    "one long text": ({"normalizer": replace("a" * 10**6)}, "is damaged .its normalizer"),
    "a table of long texts": ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": table(b"a" * 10**6)}},
                              "is damaged .its normalizer"),
    "many steps": ({"normalizer": sequence([{"type": "NFC"}] * 1000)}, "has 1001 steps"),
    "bytes of bytes": ({"pre_tokenizer": sequence([BYTE_LEVEL] * 20, "pretokenizers")}, "pre_tokenizer can make"),
    "a decoder": ({"decoder": sequence([replace("aa")] * 40, "decoders")}, "decoder can make a text"),
    "a template": ({"post_processor": sequence([TWICE] * 40, "processors")}, "post_processor can make a text"),
    "words without end": ({"model": {"type": "WordPiece", "vocab": {}, "max_input_chars_per_word": 10**9}}, "per_word"),
    "long prefix": ({"model": {"type": "BPE", "vocab": {}, "continuing_subword_prefix": "x" * 10**6}}, "1,000,000"),
    "no model": ({"model": []}, "it has no model"),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_a_vocabulary_that_would_make_texts_explode_is_refused(copy: Path, name: str) -> None:
    changes, message = BOMBS[name]
    change_vocabulary(copy, lambda content: content.update(changes))
    with pytest.raises(FolderError, match=message) as caught:
        interop.open_folder(copy)
    check_sentence(caught.value)


def test_a_key_that_stands_twice_hides_no_bomb(copy: Path) -> None:
    text, bomb = (copy / "tokenizer.json").read_text(), json.dumps(sequence([replace("aa")] * 40))
    (copy / "tokenizer.json").write_text(text.replace('"normalizer":', f'"normalizer":{bomb},"normalizer":', 1))
    with pytest.raises(FolderError, match="a key occurs twice"):
        interop.open_folder(copy)


def test_a_text_that_becomes_much_longer_is_refused_in_use_and_others_are_not(copy: Path) -> None:
    plain = Tokenizer.load(copy / "tokenizer.json")
    change_vocabulary(copy, lambda content: content.update(normalizer=sequence([replace("aa")] * 12)))
    tokenizer = Tokenizer.load(copy / "tokenizer.json")
    for call in (tokenizer.encode, tokenizer.normalize, lambda text: tokenizer.encode_batch(["", text])):
        with pytest.raises(FolderError, match=r"makes 8,000 characters or more of 125; the model cannot") as caught:
            call("a" * 125)
        check_sentence(caught.value)
    assert tokenizer.encode("Zwei kleine Kinder") == plain.encode("Zwei kleine Kinder")


@pytest.mark.parametrize(
    "normalizer",
    [
        {
            "type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
            "lowercase": True,
        },
        sequence([
            replace('"', "``"), {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"},
            replace(" ", " {2,}", "Regex"),
        ]),
        sequence([{"type": "Prepend", "prepend": "▁"}, replace("▁", " ")]),
    ],
)  # fmt: skip
def test_usual_normalizers_are_taken(copy: Path, normalizer: dict[str, Any]) -> None:
    """As BERT, ALBERT and Llama have them, with texts of which a character becomes many."""
    change_vocabulary(copy, lambda content: content.update(normalizer=normalizer))
    assert len(Tokenizer.load(copy / "tokenizer.json").encode("ﷺ" * 300)) > 300
    assert Tokenizer.from_json(word_pieces()).encode("the garden")
