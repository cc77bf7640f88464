"""The one block that encoder, decoder, GPT and BERT are stacks of (section 3.1 and 3.3 of the paper)."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.model.attention import ATTENTIONS
from heedful.model.attention.multi_head import MultiHeadAttention
from heedful.model.cache import Cache, LayerCache
from heedful.model.positions import POSITIONS, Position
from heedful.ops.dropout import dropout

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "swiglu": F.silu,
}


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W1 + b1) W2 + b2, the same at every position; SwiGLU multiplies a gate in (Shazeer, 2020)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.d_model, config.d_ff, bias=config.bias)
        self.gate = nn.Linear(config.d_model, config.d_ff, bias=config.bias) if config.activation == "swiglu" else None
        self.down = nn.Linear(config.d_ff, config.d_model, bias=config.bias)
        self.activation = ACTIVATIONS[config.activation]
        self.rate = config.activation_dropout
        self.inner = nn.Identity()  # a tap
        self._listeners = self.inner._forward_hooks

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        inner = self.activation(self.up(x)) if self.gate is None else self.activation(self.gate(x)) * self.up(x)
        if self._listeners:
            inner = self.inner(inner)
        down: Tensor = self.down(dropout(inner, self.rate, self.training))
        return down


class Residual(nn.Module):
    """LayerNorm(x + Sublayer(x)) as in the paper, or x + Sublayer(LayerNorm(x)) as is common today."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.d_model, eps=config.norm_eps)
        self.pre = config.pre_norm
        self.rate = config.dropout

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        if self.pre:
            return x + dropout(sublayer(self.norm(x)), self.rate, self.training)
        normed: Tensor = self.norm(x + dropout(sublayer(x), self.rate, self.training))
        return normed


class Block(nn.Module):
    """Self-attention, attention over a memory if `cross`, feed-forward; each with its residual and norm."""

    def __init__(self, config: ModelConfig, cross: bool, causal: bool = False) -> None:
        super().__init__()
        self.self = ATTENTIONS[config.attention_of_decoder if causal else config.attention](config, causal)
        self.self_residual = Residual(config)
        self.cross = MultiHeadAttention(config) if cross else None
        self.cross_residual = Residual(config) if cross else None
        self.feed = FeedForward(config)
        self.feed_residual = Residual(config)

    def forward(
        self,
        x: Tensor,
        keep: Tensor | None,
        position: Position,
        memory: Tensor | None = None,
        memory_keep: Tensor | None = None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        x = self.self_residual(x, lambda x: self.self.self_attention(x, keep, position, cache))
        if self.cross is not None and self.cross_residual is not None:
            cross, projected = self.cross, cache.memory if cache else None
            if projected is None:
                assert memory is not None
                projected = cross.project(memory)
            x = self.cross_residual(x, lambda x: cross.cross_attention(x, projected, memory_keep))
        fed: Tensor = self.feed_residual(x, self.feed)
        return fed


class Layers(nn.Module):
    """What all stacks of layers have in common: how embeddings come in, and names for what is seen there."""

    def __init__(self, config: ModelConfig, position: Position) -> None:
        super().__init__()
        self.position = position
        self.rate = config.dropout
        self.embedded, self.placed = nn.Identity(), nn.Identity()  # taps: tokens before and after they have positions
        self._listeners = self.embedded._forward_hooks, self.placed._forward_hooks
        self.first_norm = nn.LayerNorm(config.d_model, eps=config.norm_eps) if config.embedding_norm else None

    def enter(self, x: Tensor, start: int | Tensor = 0) -> Tensor:
        """(B, T, D) -> (B, T, D): embeddings with their positions; `start` tokens are already in the cache."""
        if self._listeners[0]:
            x = self.embedded(x)
        x = self.position.embed(x, start)
        if self.first_norm is not None:
            x = self.first_norm(x)
        if self._listeners[1]:
            x = self.placed(x)
        return dropout(x, self.rate, self.training)


class Stack(Layers):
    """N blocks, numbered from 0, over positions; pre-norm ends in a norm of its own."""

    def __init__(self, config: ModelConfig, n_layers: int, cross: bool = False, causal: bool = False) -> None:
        super().__init__(config, POSITIONS[config.positions](config, n_layers))
        for index in range(n_layers):
            self.add_module(str(index), Block(config, cross, causal))
        self.norm = nn.LayerNorm(config.d_model, eps=config.norm_eps) if config.pre_norm else None

    def forward(
        self,
        x: Tensor,
        keep: Tensor | None,
        memory: Tensor | None = None,
        memory_keep: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """(B, T, D) embeddings -> (B, T, D) hidden states."""
        x = self.enter(x, cache.start if cache else 0)
        for index, block in enumerate(self.blocks):
            x = block(x, keep, self.position.layer(index), memory, memory_keep, cache.layers[index] if cache else None)
        return x if self.norm is None else self.norm(x)

    def start(self, memory: Tensor | None = None, memory_keep: Tensor | None = None) -> Cache:
        """(B, S, D) -> a cache that holds the memory, projected for every layer."""
        cache = Cache(len(self.blocks), memory_keep)
        for block, layer in zip(self.blocks, cache.layers, strict=True):
            if block.cross is not None and memory is not None:
                layer.memory = block.cross.project(memory)
        return cache

    @property
    def blocks(self) -> list[Block]:
        """The blocks in order; block i is the submodule named `i`."""
        return [block for block in self.children() if isinstance(block, Block)]
