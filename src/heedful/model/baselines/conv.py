"""Convolutional sequence to sequence learning (Gehring et al., 2017): gated convolutions, and attention in each layer.

Sums of two are multiplied by √½ and the context by √m, m being the length of the source, so that small variances stay
as they are. Scores are divided by √d_model, as in the Transformer. A dilated stack skips 1, 2, 4, 8, 16 tokens and
begins again (ByteNet; Kalchbrenner et al., 2016).
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.model.attention.multi_head import Heads
from heedful.model.block import Layers
from heedful.model.cache import Cache, LayerCache
from heedful.model.positions import POSITIONS
from heedful.ops.dropout import dropout
from heedful.ops.scaled_dot_product import attend

HALF = math.sqrt(0.5)
DILATIONS = 5  # layers after which a dilated stack begins again with neighbours


class GatedConvolution(nn.Module):
    """GLU(x * W + b): half of the channels decide how much of the other half passes."""

    def __init__(self, config: ModelConfig, index: int, causal: bool) -> None:
        super().__init__()
        width, self.causal, self.rate = config.kernel_width, causal, config.dropout
        dilation = 2 ** (index % DILATIONS) if config.dilated else 1
        self.convolve = nn.Conv1d(config.d_model, 2 * config.d_model, width, dilation=dilation, bias=config.bias)
        nn.init.normal_(self.convolve.weight, std=math.sqrt(4 * (1 - config.dropout) / (width * config.d_model)))
        if self.convolve.bias is not None:
            nn.init.zeros_(self.convolve.bias)
        self.reach = (width - 1) * dilation

    def forward(self, x: Tensor, cache: LayerCache | None = None) -> Tensor:
        """(B, T, D) -> (B, T, D): as many tokens before each as behind it, or all before it where it is causal."""
        x = dropout(x, self.rate, self.training)
        if cache and cache.state:
            seen = torch.cat((cache.state[0], x), 1)
        else:
            seen = F.pad(x, (0, 0, self.reach, 0) if self.causal else (0, 0, self.reach // 2, self.reach // 2))
        if cache:
            cache.advance(x.size(1), seen[:, seen.size(1) - self.reach :])
        return F.glu(self.convolve(seen.transpose(1, 2)), dim=1).transpose(1, 2)


class ConvEncoder(Layers):
    """Layers of gated convolutions over the source; where there is a decoder, it gets the embeddings, too."""

    def __init__(self, config: ModelConfig, n_layers: int, memory: bool = False) -> None:
        super().__init__(config, POSITIONS[config.positions](config, n_layers))
        self.memory = memory
        for index in range(n_layers):
            self.add_module(str(index), GatedConvolution(config, index, causal=False))

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        """(B, S, D), (B, 1, 1, S) -> (B, S, D); as a memory, keys z and values (z + e) √½ side by side, (B, S, 2 D)."""
        real = keep[:, 0, 0].unsqueeze(2)  # (B, S, 1): padding is like what lies beyond the edges
        e = z = self.enter(x) * real
        for layer in (child for child in self.children() if isinstance(child, GatedConvolution)):
            z = (z + layer(z)) * HALF * real
        return torch.cat((z, (z + e) * HALF), -1) if self.memory else z


class ConvSourceAttention(Heads):
    """One head: (W h + b + g) √½ · z, where g is the embedding of the token that was written last."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(1)
        self.query = nn.Linear(config.d_model, config.d_model, bias=config.bias)
        self.rate = config.attention_dropout

    def project(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """(B, S, 2 D) -> keys and values, (B, 1, S, D)."""
        key, value = memory.unsqueeze(1).chunk(2, -1)
        if any(self._listeners):
            key, value = self._tap("keys", memory)(key), self._tap("values", memory)(value)
        return key, value

    def look(self, h: Tensor, g: Tensor, memory: tuple[Tensor, Tensor], keep: Tensor) -> Tensor:
        """(R, T, D) twice -> (R, T, D): the context, R / B rows to a sentence."""
        key, value = memory
        query = ((self.query(h) + g) * HALF).reshape(key.size(0), 1, -1, h.size(-1))  # (B, 1, W * T, D)
        rate = self.rate if self.training else 0.0
        if any(self._listeners):
            query = self._tap("queries", h)(query)
            found = self._tap("heads", h)(attend(query, key, value, keep, None, rate, self._tap("weights", h)))
        else:
            found = attend(query, key, value, keep, None, rate)
        return (found * keep.sum(-1, keepdim=True).to(found.dtype).sqrt()).view_as(h)


class ConvDecoderLayer(nn.Module):
    """A causal convolution, then a look at the source if there is one; both with their residuals."""

    def __init__(self, config: ModelConfig, index: int, cross: bool) -> None:
        super().__init__()
        self.convolution = GatedConvolution(config, index, causal=True)
        self.cross = ConvSourceAttention(config) if cross else None

    def forward(
        self, x: Tensor, g: Tensor, memory: tuple[Tensor, Tensor] | None, keep: Tensor | None, cache: LayerCache | None
    ) -> Tensor:
        """(R, T, D) -> (R, T, D)."""
        h = self.convolution(x, cache)
        if self.cross is not None and memory is not None and keep is not None:
            h = (h + self.cross.look(h, g, memory, keep)) * HALF
        added: Tensor = (x + h) * HALF
        return added


class ConvDecoder(Layers):
    """Layers of causal convolutions with attention; without a memory, a language model."""

    def __init__(self, config: ModelConfig, n_layers: int, cross: bool = False) -> None:
        super().__init__(config, POSITIONS[config.positions](config, n_layers))
        for index in range(n_layers):
            self.add_module(str(index), ConvDecoderLayer(config, index, cross))

    @property
    def layers(self) -> list[ConvDecoderLayer]:
        return [child for child in self.children() if isinstance(child, ConvDecoderLayer)]

    def start(self, memory: Tensor | None = None, memory_keep: Tensor | None = None) -> Cache:
        """(B, S, 2 D) -> a cache that holds the memory for every layer."""
        cache = Cache(len(self.layers), memory_keep)
        for layer, own in zip(self.layers, cache.layers, strict=True):
            own.memory = layer.cross.project(memory) if layer.cross is not None and memory is not None else None
        return cache

    def forward(
        self,
        x: Tensor,
        keep: Tensor | None,
        memory: Tensor | None = None,
        memory_keep: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """(R, T, D) embeddings -> (R, T, D) hidden states; `keep` is not needed, since nothing looks ahead."""
        cache = cache or self.start(memory, memory_keep)
        g = x = self.enter(x, cache.start)
        for layer, own in zip(self.layers, cache.layers, strict=True):
            x = layer(x, g, own.memory, cache.source_keep, own)
        return x
