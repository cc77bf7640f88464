"""Multi-head attention (section 3.2.2 of the paper), over the sequence itself or over a memory."""

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.model.cache import LayerCache
from heedful.model.positions import Position
from heedful.ops.scaled_dot_product import attend

TAPS = ("queries", "keys", "values", "weights", "heads")


class Heads(nn.Module):
    """What all attentions have in common: heads that can be listened to.

    The TAPS are identities that pass on what is compared, found and gathered, for others to record or to replace: all
    (R, H, T, …), but for the keys and values of a memory, which its R / B rows share. They are called only if somebody
    listens.
    """

    def __init__(self, n_heads: int, taps: Sequence[str] = TAPS) -> None:
        super().__init__()
        self.n_heads = n_heads
        for name in taps:
            self.add_module(name, nn.Identity())
        self._listeners = [self.get_submodule(name)._forward_hooks for name in taps]  # all empty, if nobody listens

    def _heads(self, x: Tensor) -> Tensor:
        """(B, T, H * d) -> (B, H, T, d)."""
        return x.view(*x.shape[:2], self.n_heads, -1).transpose(1, 2)

    def _tap(self, name: str, x: Tensor) -> Callable[[Tensor], Tensor]:
        """Who listens sees the beams as the rows of x that they are: (B, H, W * T, …) as (R, H, T, …)."""
        tap = self.get_submodule(name)

        def show(given: Tensor) -> Tensor:
            width = x.size(0) // given.size(0)
            rows = given.reshape(*given.shape[:2], width, -1, given.size(3)).transpose(1, 2).flatten(0, 1)
            shown: Tensor = tap(rows)
            return shown.reshape(-1, width, *shown.shape[1:]).transpose(1, 2).flatten(2, 3)

        return show


class MultiHeadAttention(Heads):
    """h heads look at the same sequence through projections of their own; their findings are concatenated.

    Here all keys are looked at. Other kinds of self-attention, in `kinds`, say in `_find` how they differ.
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

    def self_attention(
        self, x: Tensor, keep: Tensor | None, position: Position, cache: LayerCache | None = None
    ) -> Tensor:
        """(B, T, D) -> (B, T, D): each token attends to the tokens of its own sequence, the cached ones included."""
        start = cache.start if cache else 0
        query = position.rotate(self._heads(self.query(x)), start)
        key = position.rotate(self._heads(self.key(x)), start)
        value = self._heads(self.value(x))
        if any(self._listeners):
            query, key, value = (
                self._tap(name, x)(each) for name, each in zip(TAPS, (query, key, value), strict=False)
            )
        merged: Tensor = self.output(self._find(x, query, key, value, keep, position, cache))
        return merged

    def project(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """(B, S, D) -> keys and values of the memory, (B, H, S, d)."""
        key, value = self._heads(self.key(memory)), self._heads(self.value(memory))
        if any(self._listeners):
            key, value = self._tap("keys", memory)(key), self._tap("values", memory)(value)
        return key, value

    def cross_attention(self, x: Tensor, memory: tuple[Tensor, Tensor], keep: Tensor | None) -> Tensor:
        """(R, T, D) -> (R, T, D): each token attends to a projected memory of B sentences, R / B rows to each."""
        key, value = memory
        beams = x.reshape(key.size(0), -1, x.size(-1))  # (B, W * T, D): the beams of a sentence share its memory
        query = self._heads(self.query(beams))
        if any(self._listeners):
            query = self._tap("queries", x)(query)
        merged: Tensor = self.output(self._attend(x, query, key, value, keep, None).view_as(x))
        return merged

    def _find(
        self,
        x: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        keep: Tensor | None,
        position: Position,
        cache: LayerCache | None,
    ) -> Tensor:
        """(B, H, T, d) thrice -> (B, T, D): what the heads found, one beside the other."""
        if cache:
            key, value = cache.append(key, value)
        return self._attend(x, query, key, value, keep, position.bias(query, key.size(2)))

    def _attend(
        self, x: Tensor, query: Tensor, key: Tensor, value: Tensor, keep: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        """-> (B, W * T, D): what the heads found, one beside the other."""
        rate = self.rate if self.training else 0.0
        if any(self._listeners):
            heads = attend(query, key, value, keep, bias, rate, self._tap("weights", x))  # (B, H, W * T, d)
            heads = self._tap("heads", x)(heads)
        else:
            heads = attend(query, key, value, keep, bias, rate)
        return heads.transpose(1, 2).flatten(2)
