"""The convolutions over audio frames: against plain loops, and the same for a recording alone and in a batch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from heedful.config import ModelConfig
from heedful.model.front_end import ConvFrontEnd
from heedful.model.transformer import EncoderDecoder

SMALL = {
    "vocab_size": 11, "d_model": 8, "d_ff": 12, "n_heads": 2, "encoder_layers": 2, "decoder_layers": 2,
    "max_length": 16, "source_max_length": 30, "features": 5, "dropout": 0.0,
}  # fmt: skip


def config(**changes: object) -> ModelConfig:
    return ModelConfig.model_validate(SMALL | changes)


def convolve(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, stride: int) -> np.ndarray:
    """(T, F) -> GELU of a convolution over three frames, (T / stride, D)."""
    padded = np.pad(x, ((1, 1), (0, 0)))
    rows = [np.einsum("kf,dfk->d", padded[t : t + 3], weight) + bias for t in range(0, len(x), stride)]
    out = np.array(rows)
    return 0.5 * out * (1 + np.vectorize(math.erf)(out / np.sqrt(2)))


@pytest.mark.parametrize("stride", [2, 4])
def test_against_a_loop_over_frames(stride: int) -> None:
    torch.manual_seed(0)
    front_end = ConvFrontEnd(config(feature_stride=stride)).double()
    frames = torch.randn(1, 12, 5, dtype=torch.float64)
    weights = {name: tensor.detach().numpy() for name, tensor in front_end.named_parameters()}
    inner = convolve(frames[0].numpy(), weights["first.weight"], weights["first.bias"], stride // 2)
    expected = convolve(inner, weights["second.weight"], weights["second.bias"], 2)
    assert front_end(frames).shape == (1, 12 // stride, 8)
    assert np.allclose(front_end(frames)[0].detach().numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("stride", [2, 4])
def test_padding_changes_nothing(stride: int) -> None:
    torch.manual_seed(0)
    model = EncoderDecoder(config(feature_stride=stride)).double().eval()
    lengths = torch.tensor([3, 5, 2])
    frames = torch.randn(3, 5 * stride, 5, dtype=torch.float64)
    for row, length in enumerate(lengths.tolist()):
        frames[row, length * stride :] = 0.0
    target = torch.randint(4, 11, (3, 4))
    together = model(frames, target, lengths)
    for row, length in enumerate(lengths.tolist()):
        alone = model(frames[row : row + 1, : length * stride], target[row : row + 1])
        assert torch.allclose(together[row], alone[0], atol=1e-12)


def test_the_cache_gives_what_one_pass_gives() -> None:
    torch.manual_seed(0)
    model = EncoderDecoder(config()).double().eval()
    frames, lengths, target = torch.randn(2, 10, 5).double(), torch.tensor([5, 4]), torch.randint(4, 11, (2, 5))
    frames[1, 8:] = 0.0
    cache = model.start(frames, lengths)
    steps = torch.cat([model.step(target[:, t : t + 1], cache) for t in range(5)], 1)
    assert torch.allclose(steps, model(frames, target, lengths), atol=1e-12)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"family": "decoder"}, "needs a Transformer of the encoder-decoder family"),
        ({"architecture": "rnn"}, "needs a Transformer of the encoder-decoder family"),
        ({"tie": "target"}, "no source vocabulary"),
        ({"features": 0, "ctc": True}, "ctc is for audio input"),
    ],
)
def test_settings_that_do_not_fit(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config(**changes)
