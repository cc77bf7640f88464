"""Normalization layers: what mean and variance are taken over is the whole difference between them.

LayerNorm and RMSNorm use the channels of one token. Batch normalization uses the real tokens of a batch, instance
normalization those of a sequence; both are for comparison, and show why sequences of varying length prefer LayerNorm.
"""

import torch
from torch import Tensor, nn

from heedful.config import ModelConfig, NormKind

MOMENTUM = 0.1  # of batch normalization's running statistics


class LayerNorm(nn.LayerNorm):
    """(x - mean) / deviation over the channels of a token (Ba et al., 2016); the paper's norm."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config.d_model, eps=config.norm_eps)

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        """(B, T, D) -> (B, T, D); padding does not matter to a token."""
        return super().forward(x)


class RMSNorm(nn.RMSNorm):
    """x / root mean square over the channels of a token, without mean and bias (Zhang & Sennrich, 2019)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config.d_model, eps=config.norm_eps)

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        """(B, T, D) -> (B, T, D); padding does not matter to a token."""
        return super().forward(x)


class SequenceNorm(nn.Module):
    """Per channel: x becomes (x - mean) / deviation · weight + bias, with statistics over several tokens."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(config.d_model)), nn.Parameter(torch.zeros(config.d_model))
        self.eps = config.norm_eps

    def scale(self, x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """(B, T, D), (…, D) twice -> (B, T, D)."""
        return (x - mean) * (variance + self.eps).rsqrt() * self.weight + self.bias


class BatchNorm(SequenceNorm):
    """Statistics over the real tokens of a batch in training, their running means in use (Ioffe & Szegedy, 2015)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.running_mean: Tensor
        self.running_var: Tensor
        self.register_buffer("running_mean", torch.zeros(config.d_model))
        self.register_buffer("running_var", torch.ones(config.d_model))

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        """(B, T, D), (B, T) -> (B, T, D)."""
        if not self.training:
            return self.scale(x, self.running_mean, self.running_var)
        tokens = x.flatten(0, 1) if real is None else x[real]  # (N, D)
        variance, mean = torch.var_mean(tokens, 0, correction=0)
        with torch.no_grad():
            unbiased = variance * (len(tokens) / max(1, len(tokens) - 1))
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), MOMENTUM)
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), MOMENTUM)
        return self.scale(x, mean, variance)


class InstanceNorm(SequenceNorm):
    """Statistics over the real tokens of each sequence (Ulyanov et al., 2016), so it cannot be causal."""

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        """(B, T, D), (B, T) -> (B, T, D)."""
        keep = x.new_ones(*x.shape[:2], 1) if real is None else real.unsqueeze(2).to(x.dtype)  # (B, T, 1)
        count = keep.sum(1, keepdim=True).clamp(min=1)
        mean = (x * keep).sum(1, keepdim=True) / count  # (B, 1, D)
        variance = ((x - mean).square() * keep).sum(1, keepdim=True) / count
        return self.scale(x, mean, variance)


NORMS: dict[NormKind, type[LayerNorm | RMSNorm | SequenceNorm]] = {
    "layer": LayerNorm,
    "rms": RMSNorm,
    "batch": BatchNorm,
    "instance": InstanceNorm,
}


def build_norm(config: ModelConfig, causal: bool = False) -> nn.Module:
    """The norm of a sublayer, a function of hidden states (B, T, D) and of the mask of real tokens (B, T)."""
    return NORMS[config.norm_of_decoder if causal else config.norm](config)
