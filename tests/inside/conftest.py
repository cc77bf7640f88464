"""Model folders of all three families, with random weights and a real vocabulary."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from heedful import demo
from heedful.config import ModelConfig, SearchSettings
from heedful.model.transformer import build_model
from heedful.storage.folder import ModelFolder
from heedful.text import Tokenizer, train_vocabulary

FAMILIES = ["encoder-decoder", "decoder", "encoder"]


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    pairs = demo.generate(120, seed=5)
    return train_vocabulary([pair.source for pair in pairs] + [pair.target for pair in pairs], 600, extra=["<mask>"])


@pytest.fixture(scope="session")
def make_folder(tokenizer, tmp_path_factory):
    def make(family: str = "encoder-decoder", **changes) -> ModelFolder:
        sizes = {"d_model": 16, "d_ff": 24, "n_heads": 4, "encoder_layers": 2, "decoder_layers": 2, "max_length": 64}
        ids = {"pad_id": tokenizer.pad_id, "bos_id": tokenizer.bos_id, "eos_id": tokenizer.eos_id}
        config = ModelConfig(family=family, vocab_size=tokenizer.vocab_size, **sizes | ids | changes)
        torch.manual_seed(7)
        model = build_model(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() == 1:
                    parameter.add_(0.2 * torch.randn_like(parameter))
                else:
                    parameter.mul_(2)  # so that attention is not flat
        search = SearchSettings(beam=3, max_extra=3)
        return ModelFolder(model, tokenizer, tokenizer, search, tmp_path_factory.mktemp("folders") / family)

    return make


@pytest.fixture(scope="session")
def translator_folder(make_folder) -> ModelFolder:
    return make_folder()


@pytest.fixture(params=FAMILIES)
def folder(request, make_folder) -> ModelFolder:
    return make_folder(request.param)


@pytest.fixture
def saved(folder) -> Path:
    from heedful.storage.folder import save_folder

    save_folder(folder)
    return folder.path
