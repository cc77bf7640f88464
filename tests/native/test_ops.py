"""Every operation of the engine against torch, forward and backward, with odd sizes."""

from __future__ import annotations

import math
from ctypes import c_float, c_uint64, c_void_p
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.native.engine import library
from heedful.native.support import ACTIVATIONS

pytestmark = pytest.mark.skipif(library() is None, reason="there is no compiled engine")
PANEL = library().heedful_panel_width() if library() else 16  # type: ignore[union-attr]
TILE = 16  # rows that a bf16 GEMM may write beyond the last one


def call(name: str, *arguments: Any) -> None:
    """Call an operation; tensors are passed by their address, numbers by their C type."""
    function = getattr(library(), f"heedful_op_{name}")
    function.restype = None

    def convert(value: Any) -> Any:
        if isinstance(value, Tensor):
            assert value.is_contiguous() and value.dtype == torch.float32
            return c_void_p(value.data_ptr())
        return c_float(value) if isinstance(value, float) else value

    function(*map(convert, arguments))


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def expected_gradients(output: Tensor, grad: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(output, inputs, grad.to(output.dtype))


def close(ours: Tensor, theirs: Tensor, tolerance: float = 2e-5) -> None:
    torch.testing.assert_close(ours, theirs.float(), rtol=tolerance, atol=tolerance * float(theirs.abs().max() + 1))


@pytest.mark.parametrize(("bf16", "tolerance"), [(False, 2e-5), (True, 2e-2)])
@pytest.mark.parametrize("rows", [1, 7, 33])
def test_linear(rows: int, bf16: bool, tolerance: float) -> None:
    wide, out = 3 * PANEL, 2 * PANEL
    x, weight, bias, dy = randn(rows, wide), randn(out, wide, seed=1), randn(out, seed=2), randn(rows, out, seed=3)
    y, dx = torch.zeros(rows + TILE, out), torch.zeros(rows + TILE, wide)
    d_weight, d_bias = torch.ones(out, wide), torch.ones(out)  # accumulated into
    call("linear", int(bf16), x, rows, wide, weight, bias, out, y, dy, dx, d_weight, d_bias)
    inputs = [tensor.double().requires_grad_() for tensor in (x, weight, bias)]
    result = F.linear(*inputs)
    close(y[:rows], result.detach(), tolerance)
    for ours, theirs in zip(
        (dx[:rows], d_weight - 1, d_bias - 1), expected_gradients(result, dy, *inputs), strict=True
    ):
        close(ours, theirs, tolerance)


@pytest.mark.parametrize(("rows", "width"), [(1, 5), (3, 64), (7, 101)])
def test_layer_norm(rows: int, width: int) -> None:
    x, scale, bias, dy = randn(rows, width) + 1, randn(width), randn(width, seed=2), randn(rows, width, seed=3)
    y, dx = torch.empty(rows, width), torch.ones(rows, width)
    d_scale, d_bias = torch.zeros(width), torch.zeros(width)
    call("layer_norm", x, rows, width, scale, bias, 1e-5, y, dy, dx, d_scale, d_bias)
    inputs = [tensor.double().requires_grad_() for tensor in (x, scale, bias)]
    result = F.layer_norm(inputs[0], (width,), inputs[1], inputs[2], 1e-5)
    close(y, result.detach())
    for ours, theirs in zip((dx - 1, d_scale, d_bias), expected_gradients(result, dy, *inputs), strict=True):
        close(ours, theirs)


FUNCTIONS = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "tanh": torch.tanh,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_activations(name: str) -> None:
    """Over the whole range in which they are not constant, and with a last register that is not full."""
    x = torch.cat((torch.linspace(-30, 30, 1001), torch.linspace(-0.1, 0.1, 100)))
    dy, y, dx = randn(len(x)), torch.empty(len(x)), torch.zeros(len(x))
    call("activation", [*ACTIVATIONS, "tanh"].index(name), x, len(x), y, dy, dx)
    exact = x.double().requires_grad_()
    result = FUNCTIONS[name](exact)
    torch.testing.assert_close(y.double(), result.detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(dx.double(), expected_gradients(result, dy, exact)[0], rtol=1e-5, atol=2e-6)


def test_silu_mul() -> None:
    gate, up, dy = randn(61) * 4, randn(61, seed=1), randn(61, seed=2)
    inputs = [tensor.double().requires_grad_() for tensor in (gate, up)]
    result = F.silu(inputs[0]) * inputs[1]
    y, d_gate, d_up = torch.empty(61), torch.zeros(61), torch.zeros(61)
    call("silu_mul", gate, up, 61, y, dy, d_gate, d_up)
    close(y, result.detach())
    for ours, theirs in zip((d_gate, d_up), expected_gradients(result, dy, *inputs), strict=True):
        close(ours, theirs)


def test_rotary() -> None:
    x, dy, angles = randn(3, 10), randn(3, 10, seed=1), randn(5)
    exact = x.double().requires_grad_()
    turned = torch.view_as_complex(exact.view(3, 5, 2)) * torch.polar(torch.ones(5).double(), angles.double())
    result = torch.view_as_real(turned).flatten(1)
    table = torch.stack((angles.cos(), angles.sin()), 1).contiguous()
    ours, grad = x.clone(), dy.clone()
    call("rotary", ours, grad, 3, 10, table)
    close(ours, result.detach())
    close(grad, expected_gradients(result, dy, exact)[0])


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_dropout_add(rate: float) -> None:
    count = 64 * 500
    x, y, dz = randn(count), randn(count, seed=1), randn(count, seed=2)
    z, dx, dy = y.clone(), torch.ones(count), torch.empty(count)
    call("dropout_add", x, z, count, rate, c_uint64(7), dz, dx, dy)
    mask = dy / dz
    kept = mask != 0
    assert float(kept.float().mean()) == pytest.approx(1 - rate, abs=5 * math.sqrt(rate * (1 - rate) / count) + 1e-9)
    close(mask[kept], torch.full_like(mask[kept], 1 / (1 - rate)))
    close(z, x + y * mask)
    close(dx, 1 + dz)


@pytest.mark.parametrize("slope", [0.0, 0.4])
@pytest.mark.parametrize(
    ("queries", "keys", "causal"), [(1, 1, True), (5, 9, False), (67, 67, True), (33, 33, True), (20, 3, False)]
)
def test_attention(queries: int, keys: int, causal: bool, slope: float) -> None:
    width, stride = PANEL // 2, PANEL + PANEL // 2
    query, key, value, grad = (randn(n, stride, seed=i) for i, n in enumerate((queries, keys, keys, queries)))
    output, d_query = torch.zeros(queries, stride), torch.zeros(queries, stride)
    d_key, d_value = torch.zeros(keys, stride), torch.zeros(keys, stride)
    call(
        "attention", queries, keys, width, stride, int(causal), slope, 0.0, c_uint64(0), query, key, value, output,
        grad, d_query, d_key, d_value,
    )  # fmt: skip
    inputs = [tensor[:, :width].double().requires_grad_() for tensor in (query, key, value)]
    distance = (torch.arange(keys)[None] - torch.arange(queries)[:, None]).abs()
    bias = (-slope * distance).double()
    if causal:
        bias = bias.masked_fill(torch.ones(queries, keys).triu(1).bool(), -math.inf)
    result = F.scaled_dot_product_attention(*(tensor[None] for tensor in inputs), attn_mask=bias)[0]
    close(output[:, :width], result.detach())
    assert not output[:, width:].any()  # other heads are untouched
    expected = expected_gradients(result, grad[:, :width], *inputs)
    for ours, theirs in zip((d_query, d_key, d_value), expected, strict=True):
        close(ours[:, :width], theirs, 5e-5)


def test_attention_dropout_has_its_rate_and_backward_the_same_mask() -> None:
    """With equal scores and values of one, the output counts the weights that are kept."""
    tokens, width = 400, PANEL // 2
    query, key = torch.zeros(tokens, width), randn(tokens, width)
    value, grad = torch.ones(tokens, width), torch.ones(tokens, width)
    output, d_query = torch.zeros(tokens, width), torch.zeros(tokens, width)
    d_key, d_value = torch.zeros(tokens, width), torch.zeros(tokens, width)
    call(
        "attention", tokens, tokens, width, width, 0, 0.0, 0.25, c_uint64(3), query, key, value, output, grad,
        d_query, d_key, d_value,
    )  # fmt: skip
    assert float(output.mean()) == pytest.approx(1, abs=5 * math.sqrt(0.25 / 0.75) / tokens)
    assert float(output.std()) > 0.01
    # The sum of all outputs is linear in the values: its gradient by them counts the same kept weights.
    assert float(d_value.sum()) == pytest.approx(float(output.sum()), rel=1e-4)
