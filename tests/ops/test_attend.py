"""Attention against loops in NumPy, and the fused body against the plain one."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from heedful.ops import scaled_dot_product
from heedful.ops.scaled_dot_product import attend, attend_fused, attend_plain

MASKS = ["nothing", "padding", "causal", "bias", "padding and bias", "causal, padding and bias"]


def example(masks: str, batch: int = 3, dtype: torch.dtype = torch.float64) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Queries, keys (B, 2, 6, 4) and values (B, 2, 6, 5) that need gradients, and masks of the kinds named."""
    generator = torch.Generator().manual_seed(7)
    shapes = [(batch, 2, 6, 4), (batch, 2, 6, 4), (batch, 2, 6, 5)]
    tensors = [torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes]
    options = {}
    keep = torch.ones(batch, 1, 1, 6, dtype=torch.bool)
    if "padding" in masks:
        keep = torch.arange(6) < torch.tensor([6, 4, 1])[:batch, None, None, None]
    if "causal" in masks:
        keep = keep & torch.ones(6, 6, dtype=torch.bool).tril()
    if "padding" in masks or "causal" in masks:
        options["keep"] = keep
    if "bias" in masks:
        options["bias"] = torch.randn(2, 6, 6, generator=generator, dtype=dtype).requires_grad_()
    return tensors, options


def attend_loops(query, key, value, keep, bias):
    out = np.zeros((*query.shape[:3], value.shape[3]))
    for b, h, t in np.ndindex(*query.shape[:3]):
        weights = np.zeros(key.shape[2])
        for s in range(key.shape[2]):
            if keep[b, h, t, s]:
                score = sum(query[b, h, t, i] * key[b, h, s, i] for i in range(query.shape[3]))
                weights[s] = math.exp(score / math.sqrt(query.shape[3]) + bias[b, h, t, s])
        for s in range(key.shape[2]):
            out[b, h, t] += weights[s] / weights.sum() * value[b, h, s]
    return out


@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("body", [attend_plain, attend_fused])
def test_attention_is_what_loops_compute(body, masks):
    tensors, options = example(masks)
    full = (3, 2, 6, 6)
    keep = options.get("keep", torch.tensor(True)).expand(full).numpy()
    bias = options.get("bias", torch.zeros(())).detach().expand(full).numpy()
    expected = attend_loops(*(x.detach().numpy() for x in tensors), keep, bias)
    torch.testing.assert_close(body(*tensors, **options).detach(), torch.from_numpy(expected))


@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_fused_equals_plain_in_values_and_gradients(masks, batch, dtype):
    results = []
    for body in (attend_plain, attend_fused):
        tensors, options = example(masks, batch, dtype)
        inputs = [*tensors, *(x for x in options.values() if x.requires_grad)]
        out = body(*tensors, **options)
        gradient = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=dtype)
        results.append([out, *torch.autograd.grad(out, inputs, gradient)])
    torch.testing.assert_close(results[0], results[1])


@pytest.mark.parametrize(("queries", "keys", "expected"), [(8, 8, "plain"), (32, 32, "fused"), (16, 64, "fused")])
def test_large_score_matrices_take_the_fused_body(monkeypatch, queries, keys, expected):
    taken = []
    for body in ("plain", "fused"):
        monkeypatch.setattr(scaled_dot_product, f"attend_{body}", lambda *_, body=body: taken.append(body))
    monkeypatch.setattr(scaled_dot_product, "FUSED_FROM", 1024)
    x, y = torch.randn(2, 2, queries, 4), torch.randn(2, 2, keys, 4)
    attend(x, y, y)
    assert taken == [expected]


@pytest.mark.parametrize("masks", MASKS)
def test_both_choices_of_attend_agree(monkeypatch, masks):
    tensors, options = example(masks)
    plain = attend(*tensors, **options)
    monkeypatch.setattr(scaled_dot_product, "FUSED_FROM", 0)
    torch.testing.assert_close(attend(*tensors, **options), plain)


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_the_tap_sees_distributions_over_what_may_be_attended_to(rate):
    tensors, options = example("causal, padding and bias")
    seen = []
    attend_plain(*tensors, **options, rate=rate, tap=lambda weights: seen.append(weights) or weights)
    torch.testing.assert_close(seen[0].sum(-1), torch.ones(3, 2, 6, dtype=torch.float64))
    assert torch.equal(seen[0] > 0, options["keep"].expand(3, 2, 6, 6))


def test_the_tap_may_replace_the_weights():
    (query, key, value), _ = example("nothing")
    out = attend_plain(query, key, value, tap=lambda weights: torch.full_like(weights, 1 / 6))
    torch.testing.assert_close(out, value.mean(2, keepdim=True).expand_as(out))


def test_hidden_keys_neither_count_nor_receive_gradients():
    (query, key, value), options = example("padding")
    out = attend(query, key, value, **options)
    gradients = torch.autograd.grad(out.square().sum(), [key, value])
    hidden = ~options["keep"].transpose(2, 3).expand(3, 2, 6, 1)
    assert all((gradient.masked_select(hidden) == 0).all() for gradient in gradients)
    noisy = torch.where(hidden, 1e3, key.detach()), torch.where(hidden, 1e3, value.detach())
    assert torch.equal(attend(query, *noisy, **options), out)


@pytest.mark.parametrize("body", [attend_plain, attend_fused])
def test_dropout_acts_on_the_weights_and_keeps_their_mean(body):
    torch.manual_seed(3)
    query, key = torch.randn(2, 1, 2, 8, 4)
    query, key = query.expand(2000, -1, -1, -1), key.expand(2000, -1, -1, -1)
    value = torch.eye(8).expand(2000, 2, -1, -1)  # with the identity for values, the output is the weights
    remaining, whole = body(query, key, value, rate=0.25), body(query, key, value)
    assert abs((remaining == 0).double().mean() - 0.25) < 0.005
    torch.testing.assert_close(remaining[remaining > 0], whole[remaining > 0] / 0.75)
    torch.testing.assert_close(remaining.mean(0), whole.mean(0), atol=0.05, rtol=0)
