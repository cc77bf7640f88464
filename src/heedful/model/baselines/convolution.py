"""What all convolutional layers share: a window over a sequence, masked if causal, dilated, and separable if set.

A separable convolution is one kernel per channel (depthwise), then a product over the channels of each token
(pointwise): O(k · n · d + n · d²) instead of O(k · n · d²), the last line of section 4 of the paper about convolutions.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.model.kv_cache import LayerKVCache

DILATIONS = 5  # layers after which the dilations 1, 2, 4, 8, 16 repeat


class SeparableConvolution(nn.Module):
    """A depthwise convolution, then a pointwise one."""

    def __init__(self, channels: int, out: int, width: int, dilation: int, bias: bool) -> None:
        super().__init__()
        self.depthwise = nn.Conv1d(channels, channels, width, dilation=dilation, groups=channels, bias=False)
        self.pointwise = nn.Conv1d(channels, out, 1, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """(B, D, T) -> (B, out, T - span)."""
        out: Tensor = self.pointwise(self.depthwise(x))
        return out


class SequenceConvolution(nn.Module):
    """x * W + b over a window that is centered on each token, or ends at it if causal (masked)."""

    def __init__(
        self, config: ModelConfig, in_out: tuple[int, int], dilation: int, causal: bool, gain: float = 1.0
    ) -> None:
        """`in_out` channels; weights start such that the variance of the output is `gain` times that of the input."""
        super().__init__()
        (channels, out), width, self.causal = in_out, config.kernel_width, causal
        self.span = (width - 1) * dilation  # inputs of an output besides its own
        self.convolve: SeparableConvolution | nn.Conv1d
        if config.separable:
            self.convolve = SeparableConvolution(channels, out, width, dilation, config.bias)
            nn.init.normal_(self.convolve.depthwise.weight, std=math.sqrt(1 / width))
            last, terms = self.convolve.pointwise, channels
        else:
            self.convolve = last = nn.Conv1d(channels, out, width, dilation=dilation, bias=config.bias)
            terms = width * channels
        nn.init.normal_(last.weight, std=math.sqrt(gain / terms))
        if last.bias is not None:
            nn.init.zeros_(last.bias)

    def slide(self, x: Tensor, cache: LayerKVCache | None = None) -> Tensor:
        """(B, T, D) -> (B, T, out); zeros beyond the edges, or the last inputs from the cache."""
        if cache and cache.state:
            inputs = torch.cat((cache.state[0], x), 1)
        else:
            inputs = F.pad(x, (0, 0, self.span, 0) if self.causal else (0, 0, self.span // 2, self.span // 2))
        if cache:
            cache.advance(x.size(1), inputs[:, inputs.size(1) - self.span :])
        out: Tensor = self.convolve(inputs.transpose(1, 2))
        return out.transpose(1, 2)
