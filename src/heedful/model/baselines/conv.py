"""Convolutional sequence to sequence learning (Gehring et al., 2017): gated convolutions, and attention in each layer.

Sums of two terms are multiplied by √½ and the attention output by √m, m being the length of the source, which keeps the
variance. Embeddings are scaled down (`INPUT_SCALE`). Scores are divided by √d_model, as in the Transformer. The
dilations of a dilated stack are 1, 2, 4, 8, 16, repeated (ByteNet; Kalchbrenner et al., 2016).
"""

import math
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.model.attention.multi_head import Attention
from heedful.model.baselines.convolution import DILATIONS, SequenceConvolution
from heedful.model.block import LayerStack
from heedful.model.context import Context, LayerContext
from heedful.model.kv_cache import KVCache, LayerKVCache
from heedful.model.positions import POSITIONS
from heedful.ops.dropout import dropout
from heedful.ops.scaled_dot_product import attend, attend_plain

SQRT_HALF = math.sqrt(0.5)
# Of embeddings with positions, which have about unit variance. The gain of the convolutions (a gate is about a half)
# and √m (attention is about even) keep the variance of small numbers only: with 1 a new model has a loss far above
# ln V. The paper's embeddings start with a deviation of 0.1.
INPUT_SCALE = 0.25


class GatedConvolution(SequenceConvolution):
    """GLU(x * W + b): one half of the channels gates the other."""

    def __init__(self, config: ModelConfig, index: int, causal: bool) -> None:
        dilation = 2 ** (index % DILATIONS) if config.dilated else 1
        channels = config.d_model, 2 * config.d_model
        super().__init__(config, channels, dilation, causal, gain=4 * (1 - config.dropout))
        self.rate = config.dropout

    def forward(self, x: Tensor, cache: LayerKVCache | None = None) -> Tensor:
        """(B, T, D) -> (B, T, D): a window centered on each token, or ending at it if causal."""
        return F.glu(self.slide(dropout(x, self.rate, self.training), cache), dim=-1)


class ConvEncoder(LayerStack):
    """Layers of gated convolutions over the source; with `memory`, the output includes the embeddings for a decoder."""

    def __init__(self, config: ModelConfig, n_layers: int, memory: bool = False) -> None:
        super().__init__(config, POSITIONS[config.positions](config, n_layers))
        self.memory = memory
        for index in range(n_layers):
            self.add_module(str(index), GatedConvolution(config, index, causal=False))

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """(B, S, D) -> (B, S, D); as a memory, keys z and values (z + e) √½ concatenated, (B, S, 2 D)."""
        assert context.keep is not None
        real = context.keep[:, 0, 0].unsqueeze(2)  # (B, S, 1): padding is zero, as it is beyond the edges
        e = z = self.add_positions(x) * INPUT_SCALE * real
        for layer in (child for child in self.children() if isinstance(child, GatedConvolution)):
            z = (z + layer(z)) * SQRT_HALF * real
        return torch.cat((z, (z + e) * SQRT_HALF), -1) if self.memory else z


class ConvSourceAttention(Attention):
    """One head with scores (W h + b + g) √½ · z, where g is the embedding of the previous target token."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(1)
        self.query = nn.Linear(config.d_model, config.d_model, bias=config.bias)
        self.rate = config.attention_dropout

    def project(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """(B, S, 2 D) -> keys and values, (B, 1, S, D)."""
        key, value = memory.unsqueeze(1).chunk(2, -1)
        if self.tapped:
            key, value = self._tap("keys", memory.size(0))(key), self._tap("values", memory.size(0))(value)
        return key, value

    def cross_attention(self, h: Tensor, g: Tensor, context: LayerContext) -> Tensor:
        """(R, T, D) twice -> (R, T, D): every token attends to the cached memory of B sentences, R / B rows each."""
        assert context.cache and context.cache.memory and context.memory_keep is not None
        (key, value), keep = context.cache.memory, context.memory_keep
        query = ((self.query(h) + g) * SQRT_HALF).reshape(key.size(0), 1, -1, h.size(-1))  # (B, 1, W * T, D)
        rate = self.rate if self.training else 0.0
        if self.tapped:
            query = self._tap("queries", h.size(0))(query)
            heads = attend_plain(query, key, value, keep, None, rate, self._tap("weights", h.size(0)))
            heads = self._tap("heads", h.size(0))(heads)
        else:
            heads = attend(query, key, value, keep, None, rate)
        return (heads * keep.sum(-1, keepdim=True).to(heads.dtype).sqrt()).view_as(h)


class ConvDecoderLayer(nn.Module):
    """A causal convolution, then attention over the source if `cross`; both with a residual."""

    def __init__(self, config: ModelConfig, index: int, cross: bool) -> None:
        super().__init__()
        self.convolution = GatedConvolution(config, index, causal=True)
        self.cross = ConvSourceAttention(config) if cross else None

    def forward(self, x: Tensor, g: Tensor, context: LayerContext) -> Tensor:
        """(R, T, D) twice -> (R, T, D)."""
        h: Tensor = self.convolution(x, context.cache)
        if self.cross is not None:
            h = (h + self.cross.cross_attention(h, g, context)) * SQRT_HALF
        return (x + h) * SQRT_HALF


class ConvDecoder(LayerStack):
    """Layers of causal convolutions with attention over the source; a language model without `cross`."""

    def __init__(self, config: ModelConfig, n_layers: int, cross: bool = False) -> None:
        super().__init__(config, POSITIONS[config.positions](config, n_layers))
        for index in range(n_layers):
            self.add_module(str(index), ConvDecoderLayer(config, index, cross))

    @property
    def layers(self) -> list[ConvDecoderLayer]:
        return [child for child in self.children() if isinstance(child, ConvDecoderLayer)]

    def start_cache(self, context: Context) -> KVCache:
        """A cache without tokens that holds the memory (B, S, 2 D), projected by every layer."""
        cache = KVCache(len(self.layers), context.memory_keep)
        for layer, cached in zip(self.layers, cache.layers, strict=True):
            if layer.cross is not None and context.memory is not None:
                cached.memory = layer.cross.project(context.memory)
        return cache

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """(R, T, D) embeddings -> (R, T, D) hidden states; causal without a mask."""
        context = replace(context, cache=context.cache or self.start_cache(context))
        g = x = self.add_positions(x, context.start) * INPUT_SCALE
        for index, layer in enumerate(self.layers):
            x = layer(x, g, context.layer(index, self.position))
        return x
