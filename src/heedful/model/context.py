"""The context of a forward pass: masks, encoder memory and KV cache, everything that layers read besides hidden states.

A model builds one `Context` per pass, and a stack derives one `LayerContext` per layer from it. Neither computes.
"""

from dataclasses import dataclass

from torch import Tensor

from heedful.model.kv_cache import KVCache, LayerKVCache
from heedful.model.pointer import CopySource
from heedful.model.positions import Position


@dataclass(slots=True)
class Context:
    """What all layers of a stack share."""

    keep: Tensor | None = None  # the self-attention mask, broadcast to (B, H, T, S); None: no key is masked
    memory: Tensor | None = None  # (B, S, D): the encoder's output, unless the cache already holds its projections
    memory_keep: Tensor | None = None  # (B, 1, 1, S): the cross-attention mask
    cache: KVCache | None = None
    real: Tensor | None = None  # (B, T): True at real tokens of the hidden states; None: all are
    ids: Tensor | None = None  # (B, T): the tokens, for stacks with embeddings of their own
    tree: Tensor | None = None  # (B, T, 2): dependency trees, for positions in them
    copies: CopySource | None = None  # the source as a pointer-generator copies it

    @property
    def start(self) -> int | Tensor:
        """The position of the first token of this pass: the number of cached tokens, or (R,) one number per row."""
        return self.cache.start if self.cache else 0

    def layer(self, index: int, position: Position) -> "LayerContext":
        """The context of layer `index` of a stack with this position scheme."""
        cache = self.cache.layers[index] if self.cache else None
        return LayerContext(position.layer(index), self.keep, self.memory, self.memory_keep, cache, self.real)


@dataclass(slots=True)
class LayerContext:
    """A `Context` as one layer reads it: with the position scheme and the KV cache of that layer."""

    position: Position
    keep: Tensor | None = None
    memory: Tensor | None = None
    memory_keep: Tensor | None = None
    cache: LayerKVCache | None = None
    real: Tensor | None = None

    @property
    def start(self) -> int | Tensor:
        """As `Context.start`."""
        return self.cache.start if self.cache else 0
