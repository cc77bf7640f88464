"""What must hold for every scheme of positions, place of the norm and activation, whatever the weights."""

from itertools import cycle, product

import pytest
import torch
from torch import Tensor

from heedful.model.positions import POSITIONS
from heedful.model.transformer import build_model
from heedful.ops import scaled_dot_product

from .samples import ACTIVATIONS, NORMS, SYSTEMS, another, families, fresh, pad_right, sentences, shared, small

SHAPES = [
    pytest.param({"positions": p, "pre_norm": n == "pre", "activation": a}, id=f"{p}-{n}-{a}")
    for p, n, a in product(POSITIONS, NORMS, ACTIVATIONS)
] + [pytest.param(shape, id=name) for name, shape in SYSTEMS.items()]
every_shape = pytest.mark.parametrize("shape", SHAPES)
SOURCE_LENGTHS, TARGET_LENGTHS = [7, 3, 5], [4, 6, 2]


def assert_same(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, atol=1e-11, rtol=1e-9)


def assert_causal(model, length: int, source: Tensor | None = None) -> None:
    """Each row of a batch has another token at one place: its outputs must differ there and agree before."""
    places = torch.linspace(0, length - 1, min(length, 8)).long()
    rows = torch.arange(len(places))
    ids = sentences([length], seed=length, start=2).expand(len(places) + 1, -1).clone()
    ids[rows, places] = another(ids[rows, places])  # the last row stays as it is
    out = model(ids) if source is None else model(source.expand(len(ids), -1), ids)
    changed = (out[:-1] - out[-1]).abs().amax(-1)  # (row, place)
    assert changed[torch.arange(length) < places[:, None]].max() < 1e-12
    assert changed[rows, places].min() > 1e-6


@every_shape
def test_the_future_never_changes_the_past(shape):
    assert_causal(shared(small(**shape)), 9, sentences([5], width=6))
    if "decoder" in families(shape):
        assert_causal(shared(small(**shape, family="decoder")), 9)


@pytest.mark.parametrize("positions", POSITIONS)
def test_the_future_never_changes_the_past_at_any_length(positions):
    others = cycle(product(NORMS, ACTIVATIONS))
    for length, (norm, activation) in zip(range(2, 65), others, strict=False):
        shape = {"positions": positions, "pre_norm": norm == "pre", "activation": activation}
        assert_causal(shared(small(**shape, family="decoder")), length)
        assert_causal(shared(small(**shape)), length, sentences([length % 7 + 1], width=8))


@every_shape
def test_padding_never_changes_anything(shape):
    config = small(**shape)
    model = shared(config)
    source, target = sentences(SOURCE_LENGTHS), sentences(TARGET_LENGTHS, seed=1, start=2)
    real = target != 0
    out = model(source, target)[real]
    assert_same(model(pad_right(source, 3), target)[real], out)
    assert_same(model(source, pad_right(target, 4))[:, :6][real], out)
    assert_same(model(pad_right(source, 1), pad_right(target, 2))[:, :6][real], out)

    real = source != 0
    for family in families(shape)[1:]:
        model = shared(small(**shape, family=family))
        assert_same(model(pad_right(source, 3))[:, :7][real], model(source)[real])


@every_shape
def test_a_row_alone_is_the_same_as_in_a_batch(shape):
    source, target = sentences(SOURCE_LENGTHS), sentences(TARGET_LENGTHS, seed=1, start=2)
    for family in families(shape):
        model = shared(small(**shape, family=family))
        inputs = {"encoder-decoder": (source, target), "encoder": (source,), "decoder": (target,)}[family]
        together = model(*inputs)
        for row, (s, t) in enumerate(zip(SOURCE_LENGTHS, TARGET_LENGTHS, strict=True)):
            alone = model(*(ids[row : row + 1, : s if ids is source else t] for ids in inputs))
            assert_same(alone[0], together[row, : alone.size(1)])


@every_shape
def test_order_matters(shape):
    """Every scheme tells where a token stands: in the encoder, and on each side of the decoder."""
    source, target = sentences([6, 6]), sentences([6, 6], seed=1, start=2)
    moved = [1, 0, 2, 3, 4, 5]
    felt = 3 if shape in SYSTEMS.values() else 6  # not everything sees everything
    encoder = shared(small(**shape, family="encoder"))
    assert (encoder(source[:, moved])[:, moved] - encoder(source)).abs().amax(-1)[:, :felt].min() > 1e-5
    model = shared(small(**shape))
    out = model(source, target)
    assert (model(source[:, moved], target) - out).abs().amax(-1).min() > 1e-5
    assert (model(source, target[:, [0, 2, 1, 3, 4, 5]])[:, 3:] - out[:, 3:]).abs().amax(-1).min() > 1e-5


def test_an_alibi_encoder_tells_left_from_right_by_the_end_token_only():
    """Its penalty is the same on both sides, so that a sentence without an end equals its mirror image."""
    model = shared(small(positions="alibi", family="encoder"))
    ids = sentences([6, 6])
    assert_same(model(ids.flip(1)).flip(1), model(ids))
    ended, mirrored = pad_right(ids, 1, pad=3), pad_right(ids.flip(1), 1, pad=3)
    assert (model(mirrored)[:, :6].flip(1) - model(ended)[:, :6]).abs().amax(-1).min() > 1e-3


@pytest.mark.parametrize("positions", POSITIONS)
def test_every_source_token_affects_every_output(positions):
    model = shared(small(positions=positions))
    source, target = sentences([7, 4]), sentences([5, 6], seed=1, start=2)
    out = model(source, target)
    for row, length in enumerate((7, 4)):
        for place in range(length):
            other = source.clone()
            other[row, place] = another(source[row, place])
            changed = (model(other, target) - out).abs().amax(-1)
            assert (changed[row][target[row] != 0] > 1e-8).all()
            assert changed[1 - row].max() < 1e-12


@pytest.mark.parametrize("pad", [1, 2])
def test_padding_may_be_any_token_even_the_start(pad):
    """Marian decodes from its padding token: in the target, padding is then told by its place alone."""
    model = shared(small(pad_id=pad))
    source, target = sentences(SOURCE_LENGTHS, pad=pad), sentences(TARGET_LENGTHS, seed=1, start=2, pad=pad)
    real = torch.arange(6) < torch.tensor(TARGET_LENGTHS)[:, None]
    out = model(source, target)
    assert out.isfinite().all()
    assert_same(model(source, pad_right(target, 3, pad))[:, :6][real], out[real])
    assert_same(model(pad_right(source, 3, pad), target)[real], out[real])


def test_an_encoder_takes_a_mask_in_place_of_the_padding_token():
    model = shared(small(family="encoder"))
    ids = sentences(SOURCE_LENGTHS)
    keep = (ids != 0)[:, None, None, :]
    real = ids != 0
    assert_same(model(ids, keep)[real], model(ids)[real])
    assert_same(model(torch.where(real, ids, 11), keep)[real], model(ids)[real])


@pytest.mark.parametrize("positions", ["rotary", "alibi", "relative"])
@pytest.mark.parametrize("norm", NORMS)
def test_relative_schemes_are_invariant_to_a_common_shift(positions, norm):
    """With the first tokens hidden, only distances are left, and these stay the same."""
    model = shared(small(positions=positions, pre_norm=norm == "pre", family="encoder"))
    ids = sentences([6, 6])
    shifted = torch.nn.functional.pad(ids, (5, 0))
    torch.testing.assert_close(model(shifted)[:, 5:], model(ids), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("d_key", [None, 6])
def test_the_fused_attention_makes_the_same_model(positions, d_key, monkeypatch):
    """In values and in gradients, with the masks and biases that models make."""
    source, target = sentences(SOURCE_LENGTHS), sentences(TARGET_LENGTHS, seed=1, start=2)
    results = []
    for fused_from in (1 << 20, 0):
        monkeypatch.setattr(scaled_dot_product, "FUSED_FROM", fused_from)
        for family in ("encoder-decoder", "decoder", "encoder"):
            model = fresh(small(family=family, positions=positions, d_key=d_key))
            out = model(source, target) if family == "encoder-decoder" else model(source)
            gradients = torch.autograd.grad(out.square().cos().sum(), list(model.parameters()))
            results.append([out, *gradients])
    for plain, fused in zip(results[:3], results[3:], strict=True):
        torch.testing.assert_close(plain, fused, atol=1e-9, rtol=1e-7)


@every_shape
def test_single_precision_agrees_with_double(shape):
    config = small(**shape)
    source, target = sentences(SOURCE_LENGTHS), sentences(TARGET_LENGTHS, seed=1, start=2)
    out = fresh(config).float()(source, target)
    assert out.dtype == torch.float32
    torch.testing.assert_close(out.double(), shared(config)(source, target), atol=2e-5, rtol=1e-4)


AUTOCAST = [name for name, shape in SYSTEMS.items() if shape.keys() & {"norm", "experts", "source_span", "separable"}]


@pytest.mark.parametrize("name", [*AUTOCAST, "bytenet", "neural-gpu", "flstm-concat"])
def test_systems_train_in_bfloat16(name):
    """Gradients are finite and outputs about equal where autocast computes matrix products in bfloat16."""
    torch.manual_seed(0)
    model = build_model(small(**SYSTEMS[name] | {"dropout": 0.0})).train()
    source, target = sentences(SOURCE_LENGTHS), sentences(TARGET_LENGTHS, seed=1, start=2)
    torch.manual_seed(1)
    exact = model(source, target)
    torch.manual_seed(1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = model(source, target)
    rough.float().square().sum().backward()
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in model.parameters())
    if "experts" not in name:  # their noise is drawn in the precision of the gates
        assert (rough - exact).norm() < 0.15 * exact.norm()
