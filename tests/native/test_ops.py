"""Every operation of the engine against torch in float64: forward and backward, odd sizes, one and many threads.

Lengths and numbers of rows are any. Widths are any where the operation admits them; training GEMMs need multiples of
PANEL, embeddings, dropout and heads of attention those of LANES. Operations whose loops are parallel take their number
of threads; the others are called in several threads at once.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from ctypes import c_float, c_uint64, c_void_p
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.native.int8_reference import linear_int8
from torch import Tensor

from heedful.native.engine import library
from heedful.native.support import ACTIVATIONS

pytestmark = pytest.mark.skipif(library() is None, reason="there is no compiled engine")
PANEL = library().heedful_panel_width() if library() else 16  # type: ignore[union-attr]
LANES = PANEL // 2


def call(name: str, *arguments: Any) -> None:
    """Call an operation; tensors are passed by their address, numbers by their C type.

    The same call in three threads at once, on copies of the tensors, has the same results to the bit.
    """
    function = getattr(library(), f"heedful_op_{name}")
    function.restype = None

    def convert(value: Any) -> Any:
        if isinstance(value, Tensor):
            assert value.is_contiguous() and value.dtype in (torch.float32, torch.int32, torch.float64)
            return c_void_p(value.data_ptr())
        return c_float(value) if isinstance(value, float) else value

    copies = [[value.clone() if isinstance(value, Tensor) else value for value in arguments] for _ in range(3)]
    function(*map(convert, arguments))
    with ThreadPoolExecutor(len(copies)) as threads:
        list(threads.map(lambda copied: function(*map(convert, copied)), copies))
    for value, *others in zip(arguments, *copies, strict=True):
        for other in others if isinstance(value, Tensor) else []:
            torch.testing.assert_close(other, value, rtol=0, atol=0, equal_nan=True)


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def expected_gradients(output: Tensor, grad: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(output, inputs, grad.to(output.dtype))


def close(ours: Tensor, theirs: Tensor, tolerance: float = 2e-5) -> None:
    torch.testing.assert_close(ours, theirs.float(), rtol=tolerance, atol=tolerance * float(theirs.abs().max() + 1))


@pytest.mark.parametrize("kind", ["normal", "positive", "outliers", "extreme"])
@pytest.mark.parametrize(("rows", "width"), [(1, 1), (1, 8), (7, 51), (33, 130), (100, 34)])
def test_linear_int8(rows: int, width: int, kind: str) -> None:
    out = 2 * PANEL + 3
    x, weight, bias = randn(rows, width), randn(out, width, seed=1), randn(out, seed=2)
    if kind == "positive":
        x, weight = x.relu(), weight.abs()
    elif kind == "extreme":  # all integers are the largest, more than sums in 16 bits can take
        x, weight = x.sign(), weight.sign()
    elif kind == "outliers":
        x[::2, width // 2] = 30 * randn(len(x[::2]), seed=3)
        x[1::4, 0], x[1::4, width - 1] = 50, 50  # the same value twice is no outlier
        x[3::4] = 0
        x[3::4, width - 1] = -7  # the only value
    y, chosen = torch.zeros(rows, out), torch.tensor([0, 3, 4, out - 2, out - 1, 1, 5], dtype=torch.int32)
    shortlist = torch.zeros(rows, len(chosen))
    call("linear_int8", x, rows, width, weight, bias, out, 1 + rows % 2, y, chosen, len(chosen), shortlist)
    expected, outliers = linear_int8(x.numpy(), weight.numpy())
    assert kind != "outliers" or rows * width < 9 or outliers
    np.testing.assert_array_equal(y.numpy(), expected + bias.numpy())
    assert torch.equal(shortlist, y[:, chosen.long()])
    if kind == "normal":
        exact = F.linear(x.double(), weight.double(), bias.double())
        assert (y - exact).abs().max() < 0.02 * exact.abs().max() + 0.05


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("rows", "width", "out"), [(151, 131, 67), (33, 1030, 17), (300, 67, 131)])
def test_linear_int8_by_several_threads(rows: int, width: int, out: int, threads: int) -> None:
    """Sizes from which all of its loops are parallel: rows are quantized, and both GEMMs are computed, by threads."""
    x, weight, bias = randn(rows, width), randn(out, width, seed=1), randn(out, seed=2)
    chosen = torch.randperm(out, generator=torch.Generator().manual_seed(3)).int()[: out - 2].contiguous()
    y, shortlist = torch.zeros(rows, out), torch.zeros(rows, len(chosen))
    call("linear_int8", x, rows, width, weight, bias, out, threads, y, chosen, len(chosen), shortlist)
    np.testing.assert_array_equal(y.numpy(), linear_int8(x.numpy(), weight.numpy())[0] + bias.numpy())
    assert torch.equal(shortlist, y[:, chosen.long()])


def test_linear_int8_of_values_that_are_not_finite_is_nan_in_their_rows_alone() -> None:
    x, weight, out = randn(5, 40), randn(9, 40, seed=1), 9
    x[0, 39], x[1, 3], x[3, 17] = math.nan, math.inf, -math.inf
    x[4] *= 1e-38
    y, ids, shortlist = torch.zeros(5, out), torch.tensor([8], dtype=torch.int32), torch.zeros(5, 1)
    call("linear_int8", x, 5, 40, weight, torch.ones(out), out, 1, y, ids, 1, shortlist)
    assert y.isnan().all(1).tolist() == shortlist.isnan().all(1).tolist() == [True, True, False, True, False]
    assert (y[4] == 1).all() and y[2].isfinite().all()


@pytest.mark.parametrize(("bf16", "tolerance"), [(False, 2e-5), (True, 2e-2)])
@pytest.mark.parametrize(("rows", "panels"), [(1, (3, 2)), (7, (1, 1)), (33, (3, 2)), (17, (1, 5)), (70, (7, 3))])
def test_linear(rows: int, panels: tuple[int, int], bf16: bool, tolerance: float) -> None:
    wide, out = (PANEL * count for count in panels)
    x, weight, bias, dy = randn(rows, wide), randn(out, wide, seed=1), randn(out, seed=2), randn(rows, out, seed=3)
    y, dx, d_weight, d_bias = torch.empty(rows, out), torch.ones(rows, wide), torch.ones(out, wide), torch.ones(out)
    call("linear", int(bf16), x, rows, wide, weight, bias, out, y, dy, dx, d_weight, d_bias)
    inputs = [tensor.double().requires_grad_() for tensor in (x, weight, bias)]
    result = F.linear(*inputs)
    close(y, result.detach(), tolerance)
    expected = expected_gradients(result, dy, *inputs)
    for ours, theirs in zip((dx - 1, d_weight - 1, d_bias - 1), expected, strict=True):  # accumulated into
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


@pytest.mark.parametrize("count", [1, 2, 31, 61, 64, 1003])
def test_silu_mul(count: int) -> None:
    gate, up, dy = randn(count) * 4, randn(count, seed=1), randn(count, seed=2)
    inputs = [tensor.double().requires_grad_() for tensor in (gate, up)]
    result = F.silu(inputs[0]) * inputs[1]
    y, d_gate, d_up = torch.empty(count), torch.zeros(count), torch.zeros(count)
    call("silu_mul", gate, up, count, y, dy, d_gate, d_up)
    close(y, result.detach())
    for ours, theirs in zip((d_gate, d_up), expected_gradients(result, dy, *inputs), strict=True):
        close(ours, theirs)


def ints(*shape: int, below: int) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randint(below, shape, generator=generator, dtype=torch.int32)


@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize(
    ("count", "registers", "with_types", "learned"), [(1, 6, False, True), (13, 7, True, True), (70, 5, True, False)]
)
def test_embedding(count: int, registers: int, with_types: bool, learned: bool, rate: float) -> None:
    """A token may come several times; without learned positions none are added."""
    width, scale = registers * LANES, 1.7
    ids, types = ints(count, below=5), ints(count, below=2)
    tokens, type_table, positions = randn(5, width), randn(2, width, seed=1), randn(count, width, seed=2)
    x, dx = torch.empty(count, width), randn(count, width, seed=3)
    grads = [torch.ones(5, width), torch.ones(2, width), torch.ones(count, width)]  # accumulated into
    optional = [with_types, learned]
    tables = [tokens, *(table if used else None for table, used in zip((type_table, positions), optional, strict=True))]
    d_tables = [grads[0], *(grad if used else None for grad, used in zip(grads[1:], optional, strict=True))]
    call("embedding", ids, types, count, *tables, scale, width, rate, c_uint64(7), x, dx, *d_tables)
    inputs = [table.double().requires_grad_() for table in tables if table is not None]
    plain = scale * F.embedding(ids.long(), inputs[0])
    if with_types:
        plain = plain + scale * F.embedding(types.long(), inputs[1])
    if learned:
        plain = plain + inputs[-1]
    mask = (x != 0) / (1 - rate)  # as drawn
    assert float(mask.float().mean()) == pytest.approx(1, abs=5 * math.sqrt(rate / (1 - rate) / x.numel()) + 1e-6)
    close(x, (plain * mask).detach())
    expected = expected_gradients(plain * mask, dx, *inputs)
    for ours, theirs in zip((grad for grad in d_tables if grad is not None), expected, strict=True):
        close(ours - 1, theirs)


LENGTHS = [5, 5, 1, 1, 19, 19, 8, 8]  # of sentences, two passes each
SOFTMAX_CASES = [(0.0, False), (0.1, False), (0.0, True), (0.1, True)]  # label smoothing; a sample of the vocabulary


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("bf16", "tolerance"), [(False, 2e-5), (True, 2e-2)])
@pytest.mark.parametrize("rdrop", [0.0, 3.0])
@pytest.mark.parametrize(("label_smoothing", "sampled"), SOFTMAX_CASES)
def test_softmax_cross_entropy(
    label_smoothing: float, sampled: bool, rdrop: float, bf16: bool, tolerance: float, threads: int
) -> None:
    """With a vocabulary of more than one chunk, sampled softmax and R-Drop."""
    rows, width, vocabulary = sum(LENGTHS), 2 * PANEL, 701
    x, weight, bias = randn(rows, width), randn(vocabulary, width, seed=1) / math.sqrt(width), randn(vocabulary)
    candidates = torch.randperm(vocabulary, generator=torch.Generator().manual_seed(2))[:333].sort().values.int()
    logit_bias = randn(len(candidates), seed=5) if sampled else None
    count = len(candidates) if sampled else vocabulary
    labels = torch.cat([ints(length, below=count) for length in LENGTHS])  # the same in both passes
    dx, d_weight, d_bias = torch.ones(rows, width), torch.ones(vocabulary, width), torch.ones(vocabulary)
    sums = torch.zeros(2, dtype=torch.float64)
    call(
        "cross_entropy", int(bf16), threads, x, torch.tensor(LENGTHS, dtype=torch.int32), len(LENGTHS), weight, bias,
        vocabulary, width, labels, candidates if sampled else None, logit_bias, count, label_smoothing, rdrop, dx,
        d_weight, d_bias, sums,
    )  # fmt: skip
    inputs = [tensor.double().requires_grad_() for tensor in (x, weight, bias)]
    logits = F.linear(*inputs)
    chosen = logits[:, candidates.long()] + logit_bias.double() if logit_bias is not None else logits
    label_logits = chosen.gather(1, labels.long()[:, None])[:, 0]
    nll = chosen.logsumexp(1) - label_logits
    loss = (nll + label_smoothing * (label_logits - logits.mean(1))).sum()  # ε over the whole vocabulary
    if rdrop:
        passes = [torch.cat([chosen[first : first + count] for first, count in spans(which)]) for which in (0, 1)]
        p, q = (logits.log_softmax(1) for logits in passes)
        divergence = F.kl_div(q, p, log_target=True, reduction="sum") + F.kl_div(p, q, log_target=True, reduction="sum")
        loss, nll = loss / 2 + rdrop / 4 * divergence, nll / 2
    assert sums[0].item() == pytest.approx(loss.item(), rel=tolerance)
    assert sums[1].item() == pytest.approx(nll.sum().item(), rel=tolerance)
    expected = torch.autograd.grad(loss, inputs)
    for ours, theirs in zip((dx - 1, d_weight - 1, d_bias - 1), expected, strict=True):
        close(ours, theirs, tolerance)


def spans(which: int) -> list[tuple[int, int]]:
    """The first token and the length of every sentence in its first or second pass."""
    starts = [sum(LENGTHS[:i]) for i in range(len(LENGTHS))]
    return list(zip(starts, LENGTHS, strict=True))[which::2]


@pytest.mark.parametrize(("heads", "width"), [(1, 2), (3, 10), (8, 64), (5, 34)])
def test_rotary(heads: int, width: int) -> None:
    x, dy, angles = randn(heads, width), randn(heads, width, seed=1), randn(width // 2)
    exact = x.double().requires_grad_()
    ones = torch.ones(width // 2).double()
    turned = torch.view_as_complex(exact.view(heads, -1, 2)) * torch.polar(ones, angles.double())
    result = torch.view_as_real(turned).flatten(1)
    table = torch.stack((angles.cos(), angles.sin()), 1).contiguous()
    ours, grad = x.clone(), dy.clone()
    call("rotary", ours, grad, heads, width, table)
    close(ours, result.detach())
    close(grad, expected_gradients(result, dy, exact)[0])


@pytest.mark.parametrize("registers", [1, 2001])
@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_dropout_add(rate: float, registers: int) -> None:
    count = registers * LANES
    x, y, dz = randn(count), randn(count, seed=1), randn(count, seed=2)
    z, dx, dy = y.clone(), torch.ones(count), torch.empty(count)
    call("dropout_add", x, z, count, rate, c_uint64(7), dz, dx, dy)
    mask = dy / dz
    nonzero = mask != 0
    assert float(nonzero.float().mean()) == pytest.approx(1 - rate, abs=5 * math.sqrt(rate * (1 - rate) / count) + 1e-9)
    close(mask[nonzero], torch.full_like(mask[nonzero], 1 / (1 - rate)))
    close(z, x + y * mask)
    close(dx, 1 + dz)


@pytest.mark.parametrize("slope", [0.0, 0.4])
@pytest.mark.parametrize(
    ("queries", "keys", "causal"), [(1, 1, True), (5, 9, False), (67, 67, True), (33, 33, True), (20, 3, False)]
)
@pytest.mark.parametrize("registers", [1, 3])
def test_attention(queries: int, keys: int, causal: bool, slope: float, registers: int) -> None:
    width, stride = registers * LANES, (registers + 2) * LANES
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
    tokens, width = 400, LANES
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
