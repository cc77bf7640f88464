"""Multi-head attention (section 3.2.2 of the paper): self-attention, and cross-attention over the encoder memory."""

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.model.context import LayerContext
from heedful.ops.scaled_dot_product import attend, attend_plain

TAPS = ("queries", "keys", "values", "weights", "heads")


class Attention(nn.Module):
    """What all attention modules share: the split into heads, and taps that record or patch activations.

    A tap is an identity module that sees queries, keys, values, weights or head outputs as (R, H, T, …); only the keys
    and values of a memory are (B, H, S, d), shared by the R / B rows of a sentence. Taps without a hook are not called.
    """

    def __init__(self, n_heads: int, taps: Sequence[str] = TAPS) -> None:
        super().__init__()
        self.n_heads = n_heads
        for name in taps:
            self.add_module(name, nn.Identity())
        self._tap_hooks = [self.get_submodule(name)._forward_hooks for name in taps]

    @property
    def tapped(self) -> bool:
        """Whether any tap has a hook."""
        return any(self._tap_hooks)

    def split_heads(self, x: Tensor) -> Tensor:
        """(B, T, H * d) -> (B, H, T, d)."""
        return x.view(*x.shape[:2], self.n_heads, -1).transpose(1, 2)

    def _tap(self, name: str, rows: int) -> Callable[[Tensor], Tensor]:
        """A function that passes (B, H, W * T, …) through a tap as (R, H, T, …), where R is `rows`."""
        tap = self.get_submodule(name)

        def call(x: Tensor) -> Tensor:
            width = rows // x.size(0)
            x = x.reshape(*x.shape[:2], width, -1, x.size(3)).transpose(1, 2).flatten(0, 1)
            x = tap(x)
            return x.reshape(-1, width, *x.shape[1:]).transpose(1, 2).flatten(2, 3)

        return call


class MultiHeadAttention(Attention):
    """MultiHead(Q, K, V) = Concat(head_1, …, head_h) W_O, where head_i = Attention(Q W_Qi, K W_Ki, V W_Vi).

    Every query attends to all keys that the mask keeps. Other kinds of self-attention override `attend_heads`.
    """

    def __init__(self, config: ModelConfig, causal: bool = False) -> None:
        super().__init__(config.n_heads)
        self.causal = causal
        self.rate = config.attention_dropout
        keys = config.n_heads * config.key_width
        self.query = nn.Linear(config.d_model, keys, bias=config.bias)
        self.key = nn.Linear(config.d_model, keys, bias=config.bias)
        self.value = nn.Linear(config.d_model, config.d_model, bias=config.bias)
        self.output = nn.Linear(config.d_model, config.d_model, bias=config.bias)

    def self_attention(self, x: Tensor, context: LayerContext) -> Tensor:
        """(B, T, D) -> (B, T, D): every token attends to its own sequence, cached tokens included."""
        position, start = context.position, context.start
        query = position.rotate(self.split_heads(self.query(x)), start)
        key = position.rotate(self.split_heads(self.key(x)), start)
        value = self.split_heads(self.value(x))
        if self.tapped:
            query, key, value = (
                self._tap(name, x.size(0))(tensor) for name, tensor in zip(TAPS, (query, key, value), strict=False)
            )
        out: Tensor = self.output(self.attend_heads(query, key, value, context))
        return out

    def cross_attention(self, x: Tensor, context: LayerContext) -> Tensor:
        """(R, T, D) -> (R, T, D): every token attends to the memory of B sentences, R / B rows (beams) each."""
        memory = context.cache.memory if context.cache else None
        if memory is None:
            assert context.memory is not None
            memory = self.project(context.memory)
        key, value = memory
        beams = x.reshape(key.size(0), -1, x.size(-1))  # (B, W * T, D): the beams of a sentence share its memory
        query = self.split_heads(self.query(beams))
        if self.tapped:
            query = self._tap("queries", x.size(0))(query)
        heads = self._attend(query, key, value, context.memory_keep, None, x.size(0))
        out: Tensor = self.output(heads.view_as(x))
        return out

    def project(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """(B, S, D) -> keys and values of the memory, (B, H, S, d)."""
        key, value = self.split_heads(self.key(memory)), self.split_heads(self.value(memory))
        if self.tapped:
            key, value = self._tap("keys", memory.size(0))(key), self._tap("values", memory.size(0))(value)
        return key, value

    def attend_heads(self, query: Tensor, key: Tensor, value: Tensor, context: LayerContext) -> Tensor:
        """(B, H, T, d) three times -> (B, T, D): the concatenated heads of self-attention."""
        if context.cache:
            key, value = context.cache.append(key, value)
        return self._attend(query, key, value, context.keep, context.position.bias(query, key.size(2)), query.size(0))

    def _attend(
        self, query: Tensor, key: Tensor, value: Tensor, keep: Tensor | None, bias: Tensor | None, rows: int
    ) -> Tensor:
        """(B, H, W * T, d), (B, H, S, d) twice -> (B, W * T, D): the concatenated heads; W * B is `rows`."""
        rate = self.rate if self.training else 0.0
        if self.tapped:
            heads = attend_plain(query, key, value, keep, bias, rate, self._tap("weights", rows))  # (B, H, W * T, d)
            heads = self._tap("heads", rows)(heads)
        else:
            heads = attend(query, key, value, keep, bias, rate)
        return heads.transpose(1, 2).flatten(2)
