"""BART folders against transformers: the same numbers, the same summaries, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import heedful
from heedful import interop
from heedful.inference.summarizer import Summarizer
from heedful.interop.conversion import convert
from tests.interop.makers import bart

TEXTS = ["The old man sleeps.", "Where is the station? Here it is.", "Ein Hund!"]
SIZES: dict[str, dict[str, Any]] = {
    "small": {},
    "wide": {"d_model": 48, "encoder_ffn_dim": 80, "decoder_ffn_dim": 80, "decoder_layers": 3, "scale_embedding": True},
    "relu": {"encoder_layers": 1, "activation_function": "relu", "max_position_embeddings": 90},
}


@pytest.mark.parametrize("size", SIZES)
def test_numbers_and_summaries_are_those_of_transformers(tmp_path: Path, size: str) -> None:
    theirs = bart(tmp_path, seed=3, whole=size != "relu", **SIZES[size])
    summarizer = heedful.load(tmp_path, kind=Summarizer, precision="float32")
    tokenizer = summarizer.source_tokenizer
    for text in TEXTS:
        ids = [*tokenizer.encode(text), tokenizer.eos_id]
        assert ids[0] == 0 and ids[-1] == 2
        source, target = torch.tensor([ids]), torch.tensor([[2, 0, 9, 8, 7]])
        with torch.no_grad():
            expected = theirs(input_ids=source, decoder_input_ids=target).logits
            model = summarizer.models[0]
            torch.testing.assert_close(model.project(model(source, target)), expected, atol=2e-4, rtol=1e-4)
        output = theirs.generate(
            source, num_beams=1, do_sample=False, max_length=21, min_length=6, no_repeat_ngram_size=2
        )
        generated = [token for token in output[0, 1:].tolist() if token != 2]
        options = {"beam": 1, "max_length": 20, "min_length": 5, "no_repeat_ngram": 2, "loop_guard": False}
        assert list(summarizer.translations([text], **options)[0][0].ids) == generated


def test_a_tokenizer_file_frames_a_text_as_transformers_does(tmp_path: Path) -> None:
    bart(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ours = interop.open_folder(tmp_path).source_tokenizer
    for text in TEXTS:
        assert [*ours.encode(text), ours.eos_id] == theirs(text)["input_ids"]


def test_a_folder_converts_and_comes_back(tmp_path: Path) -> None:
    bart(tmp_path / "bart", seed=1)
    convert(tmp_path / "bart", tmp_path / "ours", "heedful")
    convert(tmp_path / "ours", tmp_path / "again", "huggingface")
    first, own, again = (heedful.load(tmp_path / name, kind=Summarizer) for name in ("bart", "ours", "again"))
    options: dict[str, Any] = {"max_length": 12, "beam": 2}
    assert first.summarize(TEXTS, **options) == own.summarize(TEXTS, **options) == again.summarize(TEXTS, **options)
    assert own.summarize("") == ""
