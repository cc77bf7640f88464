"""Small damage to a model folder, at random: bytes, JSON values, names, sizes, missing files."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

VALUES: list[Any] = [
    None, True, -1, 0, 1, 2, 3, 7, 10**6, 10**12, 10**30, 0.5, -0.5, 1e300, "", "gelu", "x" * 5000, [], [1], [[[]]], {},
    {"a": {"b": 1}}, "../../etc/passwd", "\x1b[31m\x00",
]  # fmt: skip


SPECIAL = ("<unk>", "[UNK]", "<pad>", "[PAD]", "<0x41>")
MODELS: list[dict[str, Any]] = [
    {"unk_token": None}, {"unk_token": "nothing"}, {"byte_fallback": False}, {"fuse_unk": True}, {"dropout": 0.5},
    {"type": "WordLevel", "unk_token": "nothing"}, {"type": "WordPiece", "unk_token": "nothing"},
    {"max_input_chars_per_word": 1}, {"continuing_subword_prefix": "é"}, {"end_of_word_suffix": "é"}, {"merges": []},
]  # fmt: skip
STEPS: list[Any] = [
    None,
    {"type": "Sequence", "normalizers": [{"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}] * 40},
    {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}] * 40},
    {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": "b"},
    {"type": "Replace", "pattern": {"Regex": "(?=.)"}, "content": "b" * 50},
    {"type": "Replace", "pattern": {"String": ""}, "content": "b"},
    {"type": "Precompiled", "precompiled_charsmap": "AAAA"},
    {"type": "Precompiled", "precompiled_charsmap": "//////////8="},
    {"type": "Prepend", "prepend": "ﷺ"},
    {"type": "Split", "pattern": {"Regex": "(?=.)"}, "behavior": "Removed", "invert": True},
    {"type": "Sequence", "pretokenizers": [{"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}] * 9},
    {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": False},
    {"type": "FixedLength", "length": 0},
    {"type": "Metaspace", "replacement": "é", "prepend_scheme": "always", "split": True},
    {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "B", "type_id": 0}}], "pair": []},
    {"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}},
    {"type": "BertProcessing", "sep": ["x", 10**6], "cls": ["y", 10**6]},
    {"type": "WordPiece", "prefix": "", "cleanup": True},
    {"type": "BPEDecoder", "suffix": ""},
    {"type": "CTC", "pad_token": "", "word_delimiter_token": "", "cleanup": True},
    {"type": "Strip", "content": " ", "start": 10**9, "stop": 10**9},
    {"type": "Strip", "strip_left": True, "strip_right": True},
    {"type": "Fuse"},
    {"type": "ByteFallback"},
]  # fmt: skip


def mutate(path: Path, draw: random.Random) -> None:
    """Change one to three things."""
    for _ in range(draw.choice((1, 1, 2, 3))):
        files = sorted(file for file in path.iterdir() if file.is_file())
        file = draw.choice(files)
        if file.name.endswith("tokenizer.json") and draw.random() < 0.6:
            _change_vocabulary(file, draw)
        elif file.suffix == ".json" and draw.random() < 0.7:
            _change_json(file, draw)
        else:
            draw.choice((_flip, _flip, _cut, _repeat, _remove, _swap, _fill))(file, draw)


def _change_json(file: Path, draw: random.Random) -> None:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        return
    if not isinstance(content, dict) or not content:
        return
    place = content
    while draw.random() < 0.7 and (
        inner := [value for value in _values(place) if isinstance(value, dict | list) and value]
    ):
        place = draw.choice(inner)
    key = draw.choice(sorted(place) if isinstance(place, dict) else range(len(place)))
    action = draw.random()
    if action < 0.7:
        place[key] = draw.choice(VALUES)
    elif action < 0.85:
        del place[key]
    elif isinstance(place, list):
        place *= draw.choice((2, 50))
    else:
        place[draw.choice(["n_inner", "vocab_size", "model_type", "d_model", "</s>", "weight_map"])] = draw.choice(
            VALUES
        )
    file.write_text(json.dumps(content), encoding="utf-8")


def _change_vocabulary(file: Path, draw: random.Random) -> None:
    """Changes after which a tokenizer.json often opens, and fails on some texts."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        model, pieces = content["model"], sorted(content["model"]["vocab"].keys())
    except (ValueError, KeyError, TypeError, AttributeError):
        return
    match draw.randrange(6):
        case 0:
            for piece in draw.sample(pieces, min(len(pieces), draw.choice((1, 50, 300)))):
                del model["vocab"][piece]
        case 1:
            model["vocab"] = {piece: number for piece, number in model["vocab"].items() if piece not in SPECIAL}
        case 2:
            content["added_tokens"] = draw.choice(([], None, content.get("added_tokens"), [{"id": 0, "content": "a"}]))
        case 3:
            model |= draw.choice(MODELS)
        case 4:
            content[draw.choice(("normalizer", "pre_tokenizer", "post_processor", "decoder"))] = draw.choice(STEPS)
        case _:
            model |= {"type": "Unigram", "vocab": [[piece, draw.random()] for piece in pieces], "unk_id": None}
    file.write_text(json.dumps(content), encoding="utf-8")


def _values(place: Any) -> list[Any]:
    return list(place.values()) if isinstance(place, dict) else place


def _flip(file: Path, draw: random.Random) -> None:
    data = bytearray(file.read_bytes())
    for _ in range(draw.choice((1, 3, 30))):
        if data:
            place = draw.randrange(min(len(data), draw.choice((16, 2000, len(data)))))
            data[place] = draw.randrange(256)
    file.write_bytes(data)


def _cut(file: Path, draw: random.Random) -> None:
    data = file.read_bytes()
    file.write_bytes(data[: draw.randrange(len(data) + 1)])


def _repeat(file: Path, draw: random.Random) -> None:
    data = file.read_bytes()
    place = draw.randrange(len(data) + 1)
    file.write_bytes(data[:place] + data[max(0, place - 50) :])


def _remove(file: Path, draw: random.Random) -> None:
    file.unlink()


def _swap(file: Path, draw: random.Random) -> None:
    other = draw.choice(sorted(item for item in file.parent.iterdir() if item.is_file()))
    one, two = file.read_bytes(), other.read_bytes()
    file.write_bytes(two)
    other.write_bytes(one)


def _fill(file: Path, draw: random.Random) -> None:
    file.write_bytes(draw.randbytes(draw.choice((0, 1, 100, 5000))))
