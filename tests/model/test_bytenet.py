"""ByteNet against loops in NumPy, and what a target position can see of the source."""

import math

import numpy as np
import pytest

from .samples import another, sentences, shared, small

SOURCE_LENGTHS, TARGET_LENGTHS = [7, 3, 5], [4, 6, 2]


def bytenet(**changes):
    return small(**{"architecture": "bytenet", "encoder_layers": 3, "decoder_layers": 3} | changes)


def normed(x, norm):
    centered = x - x.mean(-1, keepdims=True)
    scaled = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + norm.eps)
    return scaled * norm.weight.numpy() + norm.bias.numpy()


def linear(x, module):
    return x @ module.weight.numpy().T + module.bias.numpy()


def block_by_hand(x, block, index, causal):
    """(T, 2d) -> (T, 2d): the residual block of the paper, every sum of the dilated convolution written out."""
    h = np.maximum(normed(linear(np.maximum(normed(x, block.first_norm), 0), block.reduce), block.norm), 0)
    convolve, dilation = block.convolution.convolve, 2**index
    weight, width = convolve.weight.numpy(), convolve.weight.size(2)
    before = (width - 1) * dilation // (1 if causal else 2)
    out = np.tile(convolve.bias.numpy(), (len(x), 1))
    for t in range(len(x)):
        for tap in range(width):
            place = t - before + tap * dilation
            if 0 <= place < len(x):
                out[t] += weight[:, :, tap] @ h[place]
    return x + linear(np.maximum(normed(out, block.last_norm), 0), block.expand)


@pytest.mark.parametrize(("ratio", "extra"), [(1.0, 0), (1.2, 0), (1.5, 2)])
def test_the_model_is_what_the_paper_writes(ratio, extra):
    """The source is padded to a |s| + b columns, encoded, and column t joins target token t; then come zeros."""
    model = shared(bytenet(unfold_ratio=ratio, unfold_extra=extra))
    source, target = sentences(SOURCE_LENGTHS), sentences(TARGET_LENGTHS, seed=1, start=2)
    out = model(source, target)
    for row, (s, t) in enumerate(zip(SOURCE_LENGTHS, TARGET_LENGTHS, strict=True)):
        columns = np.zeros((math.ceil(ratio * s) + extra, 16))
        columns[:s] = model.embedding(source[row, :s]).numpy()
        for index, block in enumerate(model.encoder.blocks):
            columns = block_by_hand(columns, block, index, causal=False)
        unfolded = np.zeros((max(t, len(columns)), 16))
        unfolded[: len(columns)] = columns
        x = linear(np.concatenate([model.embedding(target[row, :t]).numpy(), unfolded[:t]], 1), model.decoder.combine)
        for index, block in enumerate(model.decoder.blocks):
            x = block_by_hand(x, block, index, causal=True)
        np.testing.assert_allclose(out[row, :t].numpy(), normed(x, model.decoder.last_norm), atol=1e-11)


def test_the_receptive_field_doubles_with_every_layer():
    model = shared(bytenet(family="decoder", decoder_layers=4))
    ids = sentences([40], start=2)
    changed = ids.clone()
    changed[0, 3] = another(ids[0, 3])
    felt = (model(changed) - model(ids)).abs().amax(-1)[0] > 1e-12
    assert felt.nonzero().flatten().tolist() == list(range(3, 3 + 2 * (1 + 2 + 4 + 8) + 1))


def test_an_odd_width_cannot_be_halved():
    with pytest.raises(ValueError, match="halves d_model"):
        bytenet(d_model=15, n_heads=1)
