"""Convolutional sequence to sequence learning against loops, and what each layer can see."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from heedful.model.baselines.conv import INPUT_SCALE
from heedful.model.context import Context
from heedful.model.transformer import build_model

from .samples import another, sentences, shared, small

HALF = math.sqrt(0.5)
SOURCE_LENGTHS = [7, 3, 5]


def convolutional(**changes):
    return small(**{"architecture": "conv"} | changes)


def glu_by_hand(x, weight, bias, before, dilation=1):
    """(T, D), (2 D, D, k) -> (T, D): every sum written out; zeros beyond the edges."""
    width, out = weight.shape[2], []
    for t in range(len(x)):
        total = bias.copy()
        for tap in range(width):
            place = t - before + tap * dilation
            if 0 <= place < len(x):
                total = total + weight[:, :, tap] @ x[place]
        a, b = np.split(total, 2)
        out.append(a / (1 + np.exp(-b)))
    return np.stack(out)


@pytest.mark.parametrize("dilated", [False, True])
@pytest.mark.parametrize("kernel_width", [3, 5])
def test_the_model_is_what_the_paper_writes(dilated, kernel_width):
    model = shared(convolutional(dilated=dilated, kernel_width=kernel_width, encoder_layers=3))
    source, target = sentences(SOURCE_LENGTHS), sentences([4, 6, 2], seed=1, start=2)
    out = model(source, target)
    for row, (s, t) in enumerate(zip(SOURCE_LENGTHS, [4, 6, 2], strict=True)):
        e = model.encoder.position.embed(model.embedding(source[row : row + 1, :s]))[0].numpy() * INPUT_SCALE
        z = e
        for index in range(3):
            convolve = model.encoder.get_submodule(f"{index}.convolve")
            step = 2**index if dilated else 1
            before = (kernel_width - 1) * step // 2
            z = (z + glu_by_hand(z, convolve.weight.numpy(), convolve.bias.numpy(), before, step)) * HALF
        g = model.decoder.position.embed(model.embedding(target[row : row + 1, :t]))[0].numpy() * INPUT_SCALE
        x = g
        for index, layer in enumerate(model.decoder.layers):
            convolve, step = layer.convolution.convolve, 2**index if dilated else 1
            before = (kernel_width - 1) * step
            h = glu_by_hand(x, convolve.weight.numpy(), convolve.bias.numpy(), before, step)
            d = (h @ layer.cross.query.weight.numpy().T + layer.cross.query.bias.numpy() + g) * HALF
            scores = np.exp(d @ z.T / math.sqrt(16))
            weights = scores / scores.sum(1, keepdims=True)
            context = weights @ ((z + e) * HALF) * math.sqrt(s)
            x = (x + (h + context) * HALF) * HALF
        np.testing.assert_allclose(out[row, :t].numpy(), x, atol=1e-12)


def test_a_layer_is_torchs_convolution_and_gate():
    model = shared(convolutional(family="decoder", decoder_layers=1))
    ids = sentences([9, 9])
    x = model.decoder.position.embed(model.embedding(ids)) * INPUT_SCALE
    convolve = model.decoder.layers[0].convolution.convolve
    expected = F.glu(F.conv1d(F.pad(x.transpose(1, 2), (2, 0)), convolve.weight, convolve.bias), 1).transpose(1, 2)
    torch.testing.assert_close(model(ids), (x + expected) * HALF)


@pytest.mark.parametrize("dilated", [False, True])
def test_a_separable_layer_is_the_full_one_with_a_product_as_its_kernel(dilated):
    """W[o, c, k] = pointwise[o, c] · depthwise[c, k] in torch's ordinary convolution."""
    model = shared(convolutional(family="decoder", decoder_layers=2, separable=True, dilated=dilated))
    layer, x = model.decoder.layers[1].convolution, torch.randn(2, 9, 16, dtype=torch.float64)
    depthwise, pointwise = layer.convolve.depthwise.weight[:, 0], layer.convolve.pointwise.weight[:, :, 0]
    kernel, step = pointwise[:, :, None] * depthwise[None], 2 if dilated else 1
    padded = F.pad(x.transpose(1, 2), (2 * step, 0))
    expected = F.glu(F.conv1d(padded, kernel, layer.convolve.pointwise.bias, dilation=step), 1).transpose(1, 2)
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize(("dilated", "reach"), [(False, 2 * 4), (True, 2 * (1 + 2 + 4 + 8))])
def test_four_layers_have_the_promised_receptive_field(dilated, reach):
    model = shared(convolutional(family="decoder", decoder_layers=4, dilated=dilated))
    ids = sentences([40], start=2)
    changed = ids.clone()
    changed[0, 3] = another(ids[0, 3])
    felt = (model(changed) - model(ids)).abs().amax(-1)[0] > 1e-12
    assert felt.nonzero().flatten().tolist() == list(range(3, 3 + reach + 1))


@pytest.mark.parametrize("separable", [False, True])
def test_a_fresh_stack_keeps_the_variance(separable):
    """The scales of the paper are there for this: small inputs of a deep stack come out as large as they went in."""
    torch.manual_seed(0)
    sizes = {"d_model": 64, "encoder_layers": 12, "dropout": 0.0, "separable": separable}
    encoder = build_model(convolutional(family="encoder", **sizes)).encoder
    x = 0.1 * torch.randn(8, 60, 64) / INPUT_SCALE
    encoder.position.embed = lambda x, start=0: x
    assert 0.07 < encoder(x, Context(torch.ones(8, 1, 1, 60, dtype=torch.bool))).std() < 0.14
