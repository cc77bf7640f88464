"""Taps record activations without changing them, and pass on what a hook puts in their place."""

import copy

import pytest
import torch
from torch import Tensor, nn

from heedful.model.attention.multi_head import TAPS
from heedful.ops import scaled_dot_product

from .samples import fresh, sentences, shared, small

WIDTH = 3


def taps(model: nn.Module) -> dict[str, nn.Module]:
    return {name: module for name, module in model.named_modules() if isinstance(module, nn.Identity)}


def record_taps(model: nn.Module, *endings: str) -> dict[str, list[Tensor]]:
    """Everything that passes the taps of these names from now on."""
    recorded: dict[str, list[Tensor]] = {}
    for name, tap in taps(model).items():
        if name.endswith(endings):
            tap.register_forward_hook(lambda _, inputs, out, name=name: recorded.setdefault(name, []).append(out))
    return recorded


def beams(model: nn.Module) -> tuple[Tensor, Tensor, Tensor]:
    """Two sources, three rows each, decoded in chunks: source and target of all rows, and their hidden states."""
    source, target = sentences([6, 4]), sentences([5] * 2 * WIDTH, seed=1, start=2)
    cache = model.start(source)
    cache.select(torch.arange(2).repeat_interleave(WIDTH))
    out = torch.cat([model.step(piece, cache) for piece in target.split([2, 1, 2], dim=1)], dim=1)
    return source.repeat_interleave(WIDTH, dim=0), target, out


def test_every_part_has_its_taps():
    names = set(taps(shared(small())))
    for part in ("encoder.0.self", "encoder.1.self", "decoder.0.self", "decoder.0.cross", "decoder.1.cross"):
        assert {f"{part}.{tap}" for tap in TAPS} <= names


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "relative"])
def test_hooks_change_no_result(positions):
    model = fresh(small(positions=positions))
    source, target, silent = beams(model)
    whole = model.project(model(source, target))
    recorded = record_taps(model, "")
    torch.testing.assert_close(beams(model)[2], silent)
    torch.testing.assert_close(model.project(model(source, target)), whole)
    assert set(recorded) == set(taps(model))


@pytest.mark.parametrize("part", ["cross", "self"])
@pytest.mark.parametrize("tap", ["queries", "weights", "heads"])
def test_beams_are_shown_as_rows(part, tap):
    """What a row shows in a search is what it shows when it is decoded alone and at once."""
    model = fresh(small())
    recorded = record_taps(model, f"decoder.1.{part}.{tap}")
    source, target, _ = beams(model)
    pieces = recorded.pop(f"decoder.1.{part}.{tap}")
    model(source, target)
    (whole,) = recorded[f"decoder.1.{part}.{tap}"]
    start = 0
    for piece in pieces:
        rows = whole[:, :, start : start + piece.size(2), : piece.size(3)]  # of the past, as much as there was
        torch.testing.assert_close(piece, rows)
        start += piece.size(2)
    assert start == 5


def test_the_keys_and_values_of_a_memory_are_shown_once_for_all_beams():
    model = fresh(small())
    recorded = record_taps(model, "decoder.0.cross.keys", "decoder.0.cross.values")
    beams(model)
    assert {name: [tuple(x.shape) for x in shown] for name, shown in recorded.items()} == {
        "decoder.0.cross.keys": [(2, 4, 6, 4)],
        "decoder.0.cross.values": [(2, 4, 6, 4)],
    }


@pytest.mark.parametrize("tap", ["queries", "weights", "heads"])
def test_a_replaced_activation_affects_its_row_alone(tap):
    model = fresh(small())
    before = beams(model)[2]

    def silence_row_four(module, inputs, out):
        return out * (torch.arange(len(out)) != 4).view(-1, 1, 1, 1)

    model.decoder.blocks[0].cross.get_submodule(tap).register_forward_hook(silence_row_four)
    changed = (beams(model)[2] - before).abs().amax(-1) > 1e-9  # (R, T)
    assert changed[4].all()
    assert not changed[[0, 1, 2, 3, 5]].any()


@pytest.mark.parametrize("tap", ["encoder.embedded", "encoder.placed", "encoder.0.feed.inner", "decoder.placed"])
def test_taps_outside_attention_replace_too(tap):
    model = fresh(small())
    inputs = sentences([6, 4]), sentences([5, 3], seed=1, start=2)
    before = model(*inputs)
    handle = model.get_submodule(tap).register_forward_hook(lambda module, inputs, out: 0 * out)
    assert (model(*inputs) - before).abs().amax(-1).min() > 1e-6
    handle.remove()
    assert torch.equal(model(*inputs), before)


def test_a_copy_of_a_model_has_hooks_of_its_own():
    model = fresh(small())
    twin = copy.deepcopy(model)
    recorded = record_taps(twin, "cross.weights")
    model(sentences([6, 4]), sentences([5, 3], start=2))
    assert not recorded
    twin(sentences([6, 4]), sentences([5, 3], start=2))
    assert set(recorded) == {"decoder.0.cross.weights", "decoder.1.cross.weights"}


@pytest.mark.parametrize("fused_from", [0, 1 << 20])
def test_weights_are_recorded_where_the_fused_kernel_would_be_used(monkeypatch, fused_from):
    monkeypatch.setattr(scaled_dot_product, "FUSED_FROM", fused_from)
    model, weights = fresh(small(family="encoder")), []
    with model.encoder.get_submodule("1.self.weights").register_forward_hook(lambda tap, _, out: weights.append(out)):
        model(sentences([6, 4]))
    assert [tensor.shape for tensor in weights] == [(2, 4, 6, 6)]
