"""The Transformer block and its stack, shared by encoder, decoder, GPT and BERT (sections 3.1 and 3.3 of the paper)."""

from collections.abc import Callable

from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.model.attention import ATTENTIONS
from heedful.model.attention.multi_head import MultiHeadAttention
from heedful.model.context import Context, LayerContext
from heedful.model.feed_forward import FeedForward, MixtureOfExperts
from heedful.model.kv_cache import KVCache
from heedful.model.norms import build_norm
from heedful.model.positions import POSITIONS, Position
from heedful.model.syntax_positions import Syntax
from heedful.ops.dropout import dropout


class Residual(nn.Module):
    """Post-norm, Norm(x + Sublayer(x)), as in the paper; or pre-norm, x + Sublayer(Norm(x))."""

    def __init__(self, config: ModelConfig, causal: bool = False) -> None:
        super().__init__()
        self.norm = build_norm(config, causal)
        self.pre_norm = config.pre_norm
        self.rate = config.dropout

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor], real: Tensor | None = None) -> Tensor:
        """(B, T, D), (B, T) -> (B, T, D)."""
        if self.pre_norm:
            return x + dropout(sublayer(self.norm(x, real)), self.rate, self.training)
        normed: Tensor = self.norm(x + dropout(sublayer(x), self.rate, self.training), real)
        return normed


class Block(nn.Module):
    """Self-attention, cross-attention over the encoder memory if `cross`, feed-forward; each with residual and norm."""

    def __init__(self, config: ModelConfig, cross: bool, causal: bool = False) -> None:
        super().__init__()
        self.self = ATTENTIONS[config.attention_of_decoder if causal else config.attention](config, causal)
        self.self_residual = Residual(config, causal)
        self.cross = MultiHeadAttention(config) if cross else None
        self.cross_residual = Residual(config, causal) if cross else None
        self.feed = MixtureOfExperts(config) if config.experts else FeedForward(config)
        self.feed_residual = Residual(config, causal)

    def forward(self, x: Tensor, context: LayerContext) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        x = self.self_residual(x, lambda x: self.self.self_attention(x, context), context.real)
        if (cross := self.cross) is not None and self.cross_residual is not None:
            x = self.cross_residual(x, lambda x: cross.cross_attention(x, context), context.real)
        out: Tensor = self.feed_residual(x, self.feed, context.real)
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

    def add_positions(self, x: Tensor, start: int | Tensor = 0, position: Position | None = None) -> Tensor:
        """(B, T, D) -> (B, T, D): embeddings with positions and dropout; `start` tokens are already in the KV cache."""
        if self._embedded_hooks:
            x = self.embedded(x)
        x = (self.position if position is None else position).embed(x, start)
        if self.first_norm is not None:
            x = self.first_norm(x)
        if self._placed_hooks:
            x = self.placed(x)
        return dropout(x, self.rate, self.training)


def build_position(config: ModelConfig, n_layers: int, causal: bool) -> Position:
    """The position scheme of a stack."""
    name = config.positions_of_decoder if causal else config.positions
    return Syntax(config, n_layers) if name == "syntax" else POSITIONS[name](config, n_layers)


class Stack(LayerStack):
    """N Transformer blocks, submodules `0` to `N - 1`; with pre-norm, a final norm."""

    def __init__(self, config: ModelConfig, n_layers: int, cross: bool = False, causal: bool = False) -> None:
        super().__init__(config, build_position(config, n_layers, causal))
        for index in range(n_layers):
            self.add_module(str(index), Block(config, cross, causal))
        self.norm = build_norm(config, causal) if config.pre_norm else None

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """(B, T, D) embeddings -> (B, T, D) hidden states."""
        position = self.position.of_batch(context.tree)
        x = self.add_positions(x, context.start, position)
        for index, block in enumerate(self.blocks):
            x = block(x, context.layer(index, position))
        return x if self.norm is None else self.norm(x, context.real)

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
