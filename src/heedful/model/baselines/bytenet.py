"""ByteNet (Kalchbrenner et al., 2016): translation in linear time, without attention and without recurrence.

The decoder is stacked on the encoder: at each target position it reads the column of the encoder's output at the same
position. Since the target may be longer than the source, the source is unfolded to a |s| + b columns before it is
encoded; beyond them the decoder reads zeros, and goes on until the end-of-sequence token (dynamic unfolding).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.model.baselines.convolution import DILATIONS, SequenceConvolution
from heedful.model.baselines.unfolding import unfold
from heedful.model.block import LayerStack
from heedful.model.context import Context
from heedful.model.kv_cache import KVCache, LayerKVCache
from heedful.model.positions import Position
from heedful.ops.dropout import dropout


class MaskedConvolution(SequenceConvolution):
    """A 1-D convolution with kernel width k and a dilation, masked if causal, over the inner channels of a block."""

    def forward(self, x: Tensor, cache: LayerKVCache | None = None) -> Tensor:
        """(B, T, D / 2) -> (B, T, D / 2)."""
        return self.slide(x, cache)


class ResidualBlock(nn.Module):
    """x + 1×1(ReLU(LN(masked(ReLU(LN(1×1(ReLU(LN(x)))))))): 2d channels outside, d inside (Figure 3 of the paper)."""

    def __init__(self, config: ModelConfig, index: int, causal: bool) -> None:
        super().__init__()
        width, inner = config.d_model, config.d_model // 2
        self.first_norm, self.norm, self.last_norm = (
            nn.LayerNorm(channels, eps=config.norm_eps) for channels in (width, inner, inner)
        )
        self.reduce = nn.Linear(width, inner, bias=config.bias)
        dilation = 2 ** (index % DILATIONS)
        self.convolution = MaskedConvolution(config, (inner, inner), dilation, causal, gain=2.0)
        self.expand = nn.Linear(inner, width, bias=config.bias)
        self.rate = config.dropout

    def forward(self, x: Tensor, real: Tensor | None = None, cache: LayerKVCache | None = None) -> Tensor:
        """(B, T, D), (B, T, 1) -> (B, T, D); the columns that are not real are zero, as beyond the edges."""
        h = F.relu(self.norm(self.reduce(F.relu(self.first_norm(x)))))
        h = self.convolution(h if real is None else h * real, cache)
        h = self.expand(F.relu(self.last_norm(h)))
        return x + dropout(h, self.rate, self.training)


class ByteNetStack(LayerStack):
    """Residual blocks with dilations 1, 2, 4, 8, 16, repeated; positions are told by the convolutions alone."""

    def __init__(self, config: ModelConfig, n_layers: int, causal: bool) -> None:
        super().__init__(config, Position(config, n_layers))
        for index in range(n_layers):
            self.add_module(str(index), ResidualBlock(config, index, causal))

    @property
    def blocks(self) -> list[ResidualBlock]:
        return [child for child in self.children() if isinstance(child, ResidualBlock)]


class ByteNetEncoder(ByteNetStack):
    """Convolutions over the source, unfolded if its output is the memory of a decoder."""

    def __init__(self, config: ModelConfig, n_layers: int, memory: bool = False) -> None:
        super().__init__(config, n_layers, causal=False)
        self.config, self.memory = config, memory

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """(B, S, D) -> (B, S, D), or (B, U, D) as a memory."""
        assert context.real is not None
        x, real = self.add_positions(x), context.real
        if self.memory:
            x, real = unfold(x, real, self.config)
        mask = real.unsqueeze(2)
        for block in self.blocks:
            x = block(x, mask)
        return x * mask


class ByteNetDecoder(ByteNetStack):
    """Masked convolutions over the target, on top of the columns of the encoder; a language model without `cross`."""

    def __init__(self, config: ModelConfig, n_layers: int, cross: bool = False) -> None:
        super().__init__(config, n_layers, causal=True)
        self.combine = nn.Linear(2 * config.d_model, config.d_model, bias=config.bias) if cross else None
        self.last_norm = nn.LayerNorm(config.d_model, eps=config.norm_eps)

    def start_cache(self, context: Context) -> KVCache:
        """A cache without tokens that holds the columns of the encoder, (B, 1, U, D)."""
        cache = KVCache(len(self.blocks), context.memory_keep)
        if context.memory is not None:
            columns = context.memory.unsqueeze(1)
            cache.layers[0].memory = columns, columns
        return cache

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """(R, T, D) embeddings -> (R, T, D) hidden states; causal without a mask."""
        cache = context.cache or self.start_cache(context)
        start, x = cache.length, self.add_positions(x, cache.start)
        if self.combine is not None and cache.layers[0].memory is not None:
            columns = cache.layers[0].memory[0].squeeze(1)  # (B, U, D)
            columns = columns[:, start : start + x.size(1)]
            columns = F.pad(columns, (0, 0, 0, x.size(1) - columns.size(1)))
            columns = columns.repeat_interleave(len(x) // len(columns), dim=0)  # the beams of a sentence share them
            x = self.combine(torch.cat((x, columns), -1))
        for block, cached in zip(self.blocks, cache.layers, strict=True):
            x = block(x, cache=cached)
        out: Tensor = self.last_norm(x)
        return out
