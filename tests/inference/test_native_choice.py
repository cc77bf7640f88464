"""What computes a model: PyTorch where the engine does not know a setting, and the log names it once."""

from __future__ import annotations

import logging

import pytest

import heedful
from heedful.inference import native_choice
from heedful.inference.encoder import Encoder
from heedful.inference.generator import Generator
from heedful.inference.native_choice import torch_notice
from heedful.inference.translator import Translator
from heedful.storage.folder import save_folder
from tests.inside.conftest import make_folder, tokenizer

__all__ = ["make_folder", "tokenizer"]


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Choices are made as if there were an engine; none of these tests computes."""
    monkeypatch.setattr(native_choice, "library", object)


UNKNOWN = [
    ("encoder-decoder", {"attention": "window"}, "model.attention=window"),
    ("decoder", {"positions": "relative"}, "model.positions=relative"),
    ("encoder", {"norm": "rms"}, "model.norm=rms"),
]


@pytest.mark.parametrize(("family", "changes", "setting"), UNKNOWN)
def test_the_log_and_the_repr_name_the_setting(make_folder, caplog, family, changes, setting) -> None:
    save_folder(folder := make_folder(family, **changes))
    loaded = heedful.load(folder.path)
    type(loaded).load(folder.path)
    sentence = f"PyTorch computes {folder.path}: the native engine does not know {setting}."
    assert caplog.record_tuples == [("heedful", logging.WARNING, sentence)] * 2  # one for each model that is opened
    assert f", PyTorch on cpu (the native engine does not know {setting}), " in repr(loaded)
    if isinstance(loaded, Translator):
        assert loaded.engine.startswith(f"PyTorch on cpu (the native engine does not know {setting}), ")


@pytest.mark.parametrize("family", ["encoder-decoder", "decoder", "encoder"])
def test_nothing_is_logged_for_models_that_the_engine_knows(make_folder, caplog, family) -> None:
    save_folder(folder := make_folder(family))
    assert "the native engine" in repr(heedful.load(folder.path))
    assert not caplog.records


def test_nothing_is_logged_where_torch_was_asked_for(make_folder, monkeypatch) -> None:
    folder = make_folder(attention="window")
    assert torch_notice([folder]) and not torch_notice([folder], "cuda")
    assert not torch_notice([folder], precision="bfloat16")
    monkeypatch.setattr(native_choice, "library", lambda: None)  # HEEDFUL_ISA=none, or a library that does not load
    assert not torch_notice([folder])


def test_models_of_an_ensemble_are_named_together(make_folder) -> None:
    first, second = make_folder(), make_folder(norm="rms")
    sentence = f"PyTorch computes {first.path} and {second.path}: the native engine does not know model.norm=rms."
    assert torch_notice([first, second]) == sentence


@pytest.mark.parametrize("family", ["decoder", "encoder"])
def test_the_engine_computes_models_of_other_formats(make_folder, family) -> None:
    folder = make_folder(family)  # its weights are modules, as those of a folder of Hugging Face
    assert not torch_notice([folder])
    assert "the native engine, int8" in repr({"decoder": Generator, "encoder": Encoder}[family](folder, "int8"))
