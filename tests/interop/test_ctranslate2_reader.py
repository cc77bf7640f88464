"""CTranslate2 folders are opened, and compute what ctranslate2 computes from them."""

from __future__ import annotations

import json
import random
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
import torch

from heedful.errors import FolderError, HeedfulError
from heedful.inference.translator import Translator
from heedful.interop import ctranslate2 as writer
from heedful.interop import open_folder
from heedful.interop.agreement import with_ctranslate2
from heedful.interop.conversion import convert
from heedful.storage.folder import ModelFolder, load_folder

from .makers import TEXTS, marian, spm
from .mutate import mutate
from .test_convert import FREE, ours

ctranslate2 = pytest.importorskip("ctranslate2")
TRANSLATORS = [name for name, changes in FREE.items() if "family" not in changes]


def written(tmp_path: Path, quantization: str | None = None, **changes: Any) -> Path:
    """A translator of random weights as ctranslate2 saves it."""
    (tmp_path / "theirs").mkdir()
    writer.write(load_folder(ours(tmp_path / "ours", **changes)), tmp_path / "theirs", quantization)
    return tmp_path / "theirs"


def check_same_tokens(opened: ModelFolder, path: Path) -> None:
    """Greedy translations by ctranslate2 and by us."""
    mine, config = Translator([opened]), opened.config
    reference = ctranslate2.Translator(str(path), compute_type="float32", intra_threads=1)
    end = [] if json.loads((path / "config.json").read_text())["add_source_eos"] else ["</s>"]
    source = [mine.source_tokenizer.pieces(ids) + end for ids in mine.source_tokenizer.encode_batch(TEXTS)]
    own_target = path / "target_vocabulary.json"
    vocabulary = set(json.loads((own_target if own_target.exists() else path / "shared_vocabulary.json").read_text()))
    never = mine.tokenizer.pieces(sorted({config.pad_id, config.bos_id} - {config.eos_id}))
    banned = [[piece] for piece in never if piece in vocabulary]
    options = {"max_decoding_length": 20, "min_decoding_length": 0, "suppress_sequences": banned}
    results = reference.translate_batch(source, beam_size=1, **options)
    translations = mine.translations(TEXTS, beam=1, max_length=20, loop_guard=False)
    assert [list(result[0].tokens) for result in translations] == [result.hypotheses[0] for result in results]
    scored = reference.score_batch(source, [mine.tokenizer.pieces(ids) for ids in mine.tokenizer.encode_batch(TEXTS)])
    log_probs = mine.score([(text, text) for text in TEXTS])
    assert log_probs == pytest.approx([sum(result.log_probs) for result in scored], rel=1e-4)


@pytest.mark.parametrize("name", TRANSLATORS)
def test_a_model_comes_back_unchanged(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, **FREE[name])
    opened, original = open_folder(path), load_folder(tmp_path / "ours")
    assert opened.config.positions == original.config.positions and opened.config.tie == original.config.tie
    assert opened.tokenizer.to_json() == original.tokenizer.to_json()
    for key, tensor in original.model.state_dict().items():
        assert torch.equal(opened.model.state_dict()[key], tensor), key


@pytest.mark.parametrize("quantization", ["float16", "int16", "int8", "bfloat16"])
def test_quantized_weights_are_those_of_ctranslate2(tmp_path: Path, quantization: str) -> None:
    """ctranslate2 computes in float32 from the same file: logits agree, and so do greedy translations."""
    path = written(tmp_path, quantization)
    opened = open_folder(path)
    original = load_folder(tmp_path / "ours").model.state_dict()["embedding.weight"]
    assert not torch.equal(opened.model.state_dict()["embedding.weight"], original)
    assert with_ctranslate2(opened, path).difference < 1e-4


def test_quantized_writing_leaves_the_model_as_it_is(tmp_path: Path) -> None:
    """ctranslate2 quantizes in place, so it must not get the model's own tensors."""
    opened = load_folder(ours(tmp_path / "ours"))
    before = {name: tensor.clone() for name, tensor in opened.model.state_dict().items()}
    (tmp_path / "theirs").mkdir()
    writer.write(opened, tmp_path / "theirs", quantization="int8")
    for name, tensor in opened.model.state_dict().items():
        assert torch.equal(tensor, before[name]), name


@pytest.mark.parametrize("quantization", [pytest.param(None, marks=pytest.mark.long), "int8"])
def test_marian_as_ctranslate2_converts_it(tmp_path: Path, quantization: str | None) -> None:
    """Written by ctranslate2 alone: sines before cosines, and a start from a zero embedding that has no token."""
    marian(tmp_path / "marian")
    converter = ctranslate2.converters.TransformersConverter(
        str(tmp_path / "marian"), copy_files=["source.spm", "target.spm"]
    )
    path = Path(converter.convert(str(tmp_path / "theirs"), quantization=quantization))
    opened = open_folder(path)
    assert opened.config.positions == "sinusoidal" and opened.config.bos_id == opened.config.vocab_size - 1
    check_same_tokens(opened, path)
    agreement = convert(path, tmp_path / "back")
    assert agreement.difference < 1e-6
    check_same_tokens(load_folder(tmp_path / "back"), path)


def test_an_argos_package_has_its_tokenizer_one_level_above(tmp_path: Path) -> None:
    marian(tmp_path / "marian")
    (tmp_path / "package").mkdir()
    inner = tmp_path / "package" / "model"
    ctranslate2.converters.TransformersConverter(str(tmp_path / "marian")).convert(str(inner))
    with pytest.raises(FolderError, match="has no tokenizer, only the tokens of a vocabulary"):
        open_folder(inner)
    (tmp_path / "package" / "metadata.json").write_text("{}")
    (tmp_path / "package" / "sentencepiece.model").write_bytes(spm(0))
    check_same_tokens(open_folder(tmp_path / "package"), inner)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no eos": ({"add_source_eos": False}, "add_source_eos is False, but heedful only supports True"),
    "bos": ({"add_source_bos": True}, "add_source_bos is True, but heedful only supports False"),
    "eos": ({"eos_token": "nothing"}, "eos_token is 'nothing'; it must be a token of the vocabulary"),
    "epsilon": ({"layer_norm_epsilon": "much"}, "layer_norm_epsilon is 'much'; it must be a number"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_setting_that_we_cannot_express_is_named(tmp_path: Path, name: str) -> None:
    changes, message = REFUSED[name]
    path = written(tmp_path)
    settings = json.loads((path / "config.json").read_text()) | changes
    (path / "config.json").write_text(json.dumps(settings))
    with pytest.raises(FolderError, match=message):
        open_folder(path)


def variable(name: str, shape: tuple[int, ...], dtype: int, content: bytes) -> bytes:
    text = name.encode() + b"\0"
    head = struct.pack("<H", len(text)) + text + struct.pack("<B", len(shape))
    return head + struct.pack(f"<{len(shape)}I", *shape) + struct.pack("<BI", dtype, len(content)) + content


def model_file(*variables: bytes, version: int = 6, name: bytes = b"TransformerSpec\0") -> bytes:
    head = struct.pack("<I", version) + struct.pack("<H", len(name)) + name + struct.pack("<I", 7)
    return head + struct.pack("<I", len(variables)) + b"".join(variables) + struct.pack("<I", 0)


HOSTILE: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "it ends too early"),
    "another version": (model_file(version=9), "has version 9 of CTranslate2's format"),
    "another model": (model_file(name=b"WhisperSpec\0"), "holds a 'WhisperSpec'"),
    "a long name": (struct.pack("<IH", 6, 60000) + b"x" * 60000, "a name has 60,000 bytes"),
    "many variables": (model_file()[:-8] + struct.pack("<I", 2**32 - 1), "lists 4,294,967,295 variables"),
    "a large shape": (model_file(variable("x", (2**31, 2**31), 0, b"1234")), "which its shape or the file contradicts"),
    "many dimensions": (model_file(variable("x", (1,) * 200, 0, b"1234")), "has 200 dimensions"),
    "another type": (model_file(variable("x", (1,), 77, b"1234")), "has type 77"),
    "twice": (model_file(*[variable("x", (1,), 0, b"1234")] * 2), "holds 'x' twice"),
    "bytes after": (model_file() + b"more", "bytes after its last variable"),
    "no layers": (model_file(), "has no layers of the encoder"),
    "not a name": (model_file(name=b"\xff\xfe\0"), "a name is not UTF-8"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_gets_a_sentence(tmp_path: Path, name: str) -> None:
    path, (content, message) = written(tmp_path), HOSTILE[name]
    (path / "model.bin").write_bytes(content)
    with pytest.raises(FolderError, match=message) as caught:
        open_folder(path)
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)


def test_mutated_folders_load_or_get_one_sentence(tmp_path: Path) -> None:
    path = written(tmp_path, "int8", d_model=8, d_ff=8, encoder_layers=1, decoder_layers=1)
    outcomes = {"opened": 0, "refused": 0}
    for seed in range(60):
        shutil.copytree(path, tmp_path / "copy")
        draw = random.Random(seed)
        if seed % 2:
            mutate(tmp_path / "copy", draw)
        else:  # in the first variables, where the counts and sizes are
            content = bytearray((path / "model.bin").read_bytes())
            content[draw.randrange(400)] = draw.randrange(256)
            (tmp_path / "copy" / "model.bin").write_bytes(content)
        try:
            open_folder(tmp_path / "copy")
            outcomes["opened"] += 1
        except HeedfulError as error:
            assert str(error).endswith(".") and "\n" not in str(error) and len(str(error)) < 700
            outcomes["refused"] += 1
        shutil.rmtree(tmp_path / "copy")
    assert outcomes["refused"] > 15 and outcomes["opened"] > 10
