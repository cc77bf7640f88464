"""The Transformer block and its stack, shared by encoder, decoder, GPT and BERT (sections 3.1 and 3.3 of the paper)."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.model.attention import ATTENTIONS
from heedful.model.attention.multi_head import MultiHeadAttention
from heedful.model.context import Context, LayerContext
from heedful.model.kv_cache import KVCache
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
    """FFN(x) = max(0, x W1 + b1) W2 + b2, the same at every position; SwiGLU adds a gate (Shazeer, 2020)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.d_model, config.d_ff, bias=config.bias)
        self.gate = nn.Linear(config.d_model, config.d_ff, bias=config.bias) if config.activation == "swiglu" else None
        self.down = nn.Linear(config.d_ff, config.d_model, bias=config.bias)
        self.activation = ACTIVATIONS[config.activation]
        self.rate = config.activation_dropout
        self.inner = nn.Identity()  # a tap
        self._inner_hooks = self.inner._forward_hooks

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        inner = self.activation(self.up(x)) if self.gate is None else self.activation(self.gate(x)) * self.up(x)
        if self._inner_hooks:
            inner = self.inner(inner)
        down: Tensor = self.down(dropout(inner, self.rate, self.training))
        return down


class Residual(nn.Module):
    """Post-norm, LayerNorm(x + Sublayer(x)), as in the paper; or pre-norm, x + Sublayer(LayerNorm(x))."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.d_model, eps=config.norm_eps)
        self.pre_norm = config.pre_norm
        self.rate = config.dropout

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        if self.pre_norm:
            return x + dropout(sublayer(self.norm(x)), self.rate, self.training)
        normed: Tensor = self.norm(x + dropout(sublayer(x), self.rate, self.training))
        return normed


class Block(nn.Module):
    """Self-attention, cross-attention over the encoder memory if `cross`, feed-forward; each with residual and norm."""

    def __init__(self, config: ModelConfig, cross: bool, causal: bool = False) -> None:
        super().__init__()
        self.self = ATTENTIONS[config.attention_of_decoder if causal else config.attention](config, causal)
        self.self_residual = Residual(config)
        self.cross = MultiHeadAttention(config) if cross else None
        self.cross_residual = Residual(config) if cross else None
        self.feed = FeedForward(config)
        self.feed_residual = Residual(config)

    def forward(self, x: Tensor, context: LayerContext) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        x = self.self_residual(x, lambda x: self.self.self_attention(x, context))
        if (cross := self.cross) is not None and self.cross_residual is not None:
            x = self.cross_residual(x, lambda x: cross.cross_attention(x, context))
        out: Tensor = self.feed_residual(x, self.feed)
        return out


class LayerStack(nn.Module):
    """What all stacks share, Transformer, recurrent or convolutional: positions and dropout on the embeddings."""

    def __init__(self, config: ModelConfig, position: Position) -> None:
        super().__init__()
        self.position = position
        self.rate = config.dropout
        self.embedded, self.placed = nn.Identity(), nn.Identity()  # taps: embeddings without and with positions
        self._embedded_hooks, self._placed_hooks = self.embedded._forward_hooks, self.placed._forward_hooks
        self.first_norm = nn.LayerNorm(config.d_model, eps=config.norm_eps) if config.embedding_norm else None

    def add_positions(self, x: Tensor, start: int | Tensor = 0) -> Tensor:
        """(B, T, D) -> (B, T, D): embeddings with positions and dropout; `start` tokens are already in the KV cache."""
        if self._embedded_hooks:
            x = self.embedded(x)
        x = self.position.embed(x, start)
        if self.first_norm is not None:
            x = self.first_norm(x)
        if self._placed_hooks:
            x = self.placed(x)
        return dropout(x, self.rate, self.training)


class Stack(LayerStack):
    """N Transformer blocks, submodules `0` to `N - 1`; with pre-norm, a final norm."""

    def __init__(self, config: ModelConfig, n_layers: int, cross: bool = False, causal: bool = False) -> None:
        super().__init__(config, POSITIONS[config.positions](config, n_layers))
        for index in range(n_layers):
            self.add_module(str(index), Block(config, cross, causal))
        self.norm = nn.LayerNorm(config.d_model, eps=config.norm_eps) if config.pre_norm else None

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """(B, T, D) embeddings -> (B, T, D) hidden states."""
        x = self.add_positions(x, context.start)
        for index, block in enumerate(self.blocks):
            x = block(x, context.layer(index, self.position))
        return x if self.norm is None else self.norm(x)

    def start_cache(self, context: Context) -> KVCache:
        """A KV cache without tokens that holds the memory, projected by every layer."""
        cache = KVCache(len(self.blocks), context.memory_keep)
        for block, layer in zip(self.blocks, cache.layers, strict=True):
            if block.cross is not None and context.memory is not None:
                layer.memory = block.cross.project(context.memory)
        return cache

    @property
    def blocks(self) -> list[Block]:
        """The blocks in order; block i is the submodule named `i`."""
        return [block for block in self.children() if isinstance(block, Block)]
