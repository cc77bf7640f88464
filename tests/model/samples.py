"""Small models and batches. Weights are such that no bias is zero, no norm is one and every position is felt."""

from functools import cache

import torch
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.model import build
from heedful.model.transformer import Model

ACTIVATIONS = ["relu", "gelu", "gelu_tanh", "silu", "swiglu"]
NORMS = ["post", "pre"]


def small(**changes) -> ModelConfig:
    sizes = {"vocab_size": 19, "d_model": 16, "d_ff": 24, "n_heads": 4, "encoder_layers": 2, "decoder_layers": 2}
    return ModelConfig(**sizes | {"max_length": 80} | changes)


def stir(module: nn.Module, seed: int = 0) -> nn.Module:
    """Random numbers in whatever starts at zero, one or almost zero; double precision; no dropout."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() == 1:
                parameter.add_(0.3 * noise)
            elif name.endswith("table"):
                parameter.copy_(0.5 * noise)
    return module.double().eval()


def fresh(config: ModelConfig, seed: int = 0) -> Model:
    torch.manual_seed(seed)
    return stir(build(config), seed)


@cache
def shared(config: ModelConfig, seed: int = 0) -> Model:
    """A model that no test may change."""
    return fresh(config, seed).requires_grad_(False)


def sentences(lengths: list[int], seed: int = 0, start: int | None = None, width: int = 0, pad: int = 0) -> Tensor:
    """(B, longest or `width`) random ids from 4 to 18, padded on the right, opened by `start` if given."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.full((len(lengths), max(*lengths, width)), pad)
    for row, length in zip(ids, lengths, strict=True):
        row[:length] = torch.randint(4, 19, (length,), generator=generator)
    if start is not None:
        ids[:, 0] = start
    return ids


def pad_right(ids: Tensor, columns: int, pad: int = 0) -> Tensor:
    return nn.functional.pad(ids, (0, columns), value=pad)


def another(ids: Tensor) -> Tensor:
    """Other tokens, real ones too."""
    return 4 + (ids - 3) % 15
