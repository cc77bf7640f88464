"""Multi-head attention (section 3.2.2 of the paper), over the sequence itself or over a memory."""

from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.model.cache import LayerCache
from heedful.model.positions import Position
from heedful.ops import attend


class Attention(nn.Module):
    """h heads look at the same sequence through projections of their own; their findings are concatenated.

    `weights` is a tap: an identity that passes on the attention weights for others to record or to replace.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.n_heads = config.n_heads
        self.rate = config.attention_dropout
        keys = config.n_heads * config.key_width
        self.query = nn.Linear(config.d_model, keys, bias=config.bias)
        self.key = nn.Linear(config.d_model, keys, bias=config.bias)
        self.value = nn.Linear(config.d_model, config.d_model, bias=config.bias)
        self.output = nn.Linear(config.d_model, config.d_model, bias=config.bias)
        self.weights = nn.Identity()

    def over_itself(
        self, x: Tensor, keep: Tensor | None, position: Position, cache: LayerCache | None = None
    ) -> Tensor:
        """(B, T, D) -> (B, T, D): each token attends to the tokens of its own sequence, the cached ones included."""
        start = cache.length if cache else 0
        query = position.turn(self._heads(self.query(x)), start)
        key = position.turn(self._heads(self.key(x)), start)
        value = self._heads(self.value(x))
        if cache:
            key, value = cache.append(key, value)
        return self._attend(query, key, value, keep, position.bias(query, key.size(2)))

    def project(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """(B, S, D) -> keys and values of the memory, (B, H, S, d)."""
        return self._heads(self.key(memory)), self._heads(self.value(memory))

    def over_memory(self, x: Tensor, memory: tuple[Tensor, Tensor], keep: Tensor | None) -> Tensor:
        """(R, T, D) -> (R, T, D): each token attends to a projected memory of B sentences, R / B rows to each."""
        key, value = memory
        beams = x.reshape(key.size(0), -1, x.size(-1))  # (B, W * T, D): the beams of a sentence share its memory
        return self._attend(self._heads(self.query(beams)), key, value, keep, None).view_as(x)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, keep: Tensor | None, bias: Tensor | None) -> Tensor:
        rate = self.rate if self.training else 0.0
        tap = self.weights if self.weights._forward_hooks else None
        heads = attend(query, key, value, keep, bias, rate, tap)  # (B, H, T, d)
        merged: Tensor = self.output(heads.transpose(1, 2).flatten(2))
        return merged

    def _heads(self, x: Tensor) -> Tensor:
        """(B, T, H * d) -> (B, H, T, d)."""
        return x.view(*x.shape[:2], self.n_heads, -1).transpose(1, 2)
