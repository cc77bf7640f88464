"""The engine and PyTorch over one model: what is changed in a module has an effect, whichever computed before."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

import heedful
from heedful.inference.encoder import Encoder
from heedful.inference.generator import Generator
from heedful.native import library
from tests.inside.conftest import make_folder, tokenizer

__all__ = ["make_folder", "tokenizer"]
pytestmark = pytest.mark.skipif(library() is None, reason="there is no compiled engine")
TEXTS = ["The dog sleeps.", "The man reads a book."]


def fused_step(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    torch.optim.SGD(model.parameters(), lr=0.1, fused=True).step()  # PyTorch counts no change of the weights


def other_forward(model: nn.Module) -> None:
    model.get_submodule("encoder.0.feed").forward = lambda x, *_: torch.zeros_like(x)  # type: ignore[method-assign]


def other_part(model: nn.Module) -> None:
    model.get_submodule("encoder.0").feed = nn.Identity()


def one_more_part(model: nn.Module) -> None:
    model.probe = nn.Linear(2, 2)


@pytest.mark.parametrize("change", [fused_step, other_forward, other_part, one_more_part])
def test_pytorch_computes_what_is_changed_in_a_module(make_folder, change: Callable[..., None]) -> None:
    encoder = Encoder(make_folder("encoder"))
    before = encoder.embed(TEXTS)
    assert encoder.engine is not None
    change(encoder.model)
    assert encoder.engine is None and "PyTorch on cpu (the native engine leaves it to PyTorch once" in repr(encoder)
    assert np.allclose(encoder.embed(TEXTS), before, atol=1e-5) == (change is one_more_part)


@pytest.mark.parametrize("family", ["decoder", "encoder"])
def test_weights_that_change_in_a_folder_are_loaded_again(make_folder, family: str) -> None:
    folder = make_folder(family)
    loaded = {"decoder": Generator, "encoder": Encoder}[family](folder)
    before = loaded.engine
    assert before is not None and folder.model is not None and loaded.engine is before
    with torch.no_grad():
        next(folder.model.parameters()).neg_()
    assert (after := loaded.engine) is not before
    name, weight = next(iter(folder.model.named_parameters()))
    owner = folder.model.get_submodule(name.rpartition(".")[0])
    for number in range(5):  # the memory of a weight that is gone may be that of the next one
        delattr(owner, name.rpartition(".")[2])
        owner.register_parameter(name.rpartition(".")[2], nn.Parameter(torch.full(weight.shape, float(number))))
        assert loaded.engine is not after
        after = loaded.engine


def test_a_model_in_use_is_copied(make_folder) -> None:
    encoder = Encoder(make_folder("encoder"))  # of modules: a file with weights is not copied
    expected = encoder.embed(TEXTS)
    assert (copy.deepcopy(encoder).embed(TEXTS) == expected).all()


def test_a_recording_leaves_the_model_to_pytorch_while_it_lasts(make_folder) -> None:
    generator = Generator(make_folder("decoder"), "int8")
    before = generator.generate("Der Hund", temperature=0, max_tokens=5)
    with heedful.record(generator) as trace:
        assert generator.engine is None and "PyTorch on cpu" in repr(generator) and "float32" in repr(generator)
        generator.generate("Der Hund", temperature=0, max_tokens=5)
    assert trace and generator.engine is not None and "the native engine, int8" in repr(generator)
    assert generator.generate("Der Hund", temperature=0, max_tokens=5) == before


def test_dropout_stays_off_when_a_module_was_left_in_training_mode(make_folder) -> None:
    encoder = Encoder(make_folder("encoder", dropout=0.5))
    encoder.model.train()
    assert (encoder.embed(TEXTS) == encoder.embed(TEXTS)).all()
