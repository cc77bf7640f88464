"""Local attention, with or without a few global tokens: time and memory grow with n · r, not with n².

Window attention is what section 4 of the paper calls restricted self-attention. Sparse attention adds global tokens
that every query attends to: the first ones, as in Longformer (Beltagy et al., 2020), and the last one of every block,
as in the fixed pattern of Sparse Transformers (Child et al., 2019).
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.config import ModelConfig
from heedful.model.attention.multi_head import MultiHeadAttention
from heedful.model.context import LayerContext
from heedful.model.positions import Position, distances
from heedful.ops.dropout import dropout
from heedful.ops.scaled_dot_product import attend

MIN_BLOCK_SIZE = 8  # queries of a block, even if the window is narrower


class WindowAttention(MultiHeadAttention):
    """Each token attends to itself and r tokens on each side, or only to r tokens before it if attention is causal.

    Queries are cut into blocks; each block is compared with the keys from r before its first query to r after its last.
    """

    def __init__(self, config: ModelConfig, causal: bool = False) -> None:
        super().__init__(config, causal)
        self.radius = config.attention_window

    def mask(
        self, queries: int, keys: int, device: torch.device | None = None, left_padding: Tensor | None = None
    ) -> Tensor:
        """-> (T, S): the mask with which full attention gives the same result, aligned to the bottom right.

        With `left_padding` (B,), the masks of the rows may differ: (B, 1, T, S).
        """
        return self._in_window(distances(torch.arange(keys - queries, keys, device=device), keys))

    def _in_window(self, distance: Tensor) -> Tensor:
        return distance.abs() <= self.radius if not self.causal else (distance <= 0) & (distance >= -self.radius)

    def attend_heads(self, query: Tensor, key: Tensor, value: Tensor, context: LayerContext) -> Tensor:
        if context.cache:
            key, value = context.cache.append(key, value)
        left_padding = context.cache.left_padding if context.cache else None
        if self.tapped or key.size(2) <= self._block_sizes(query)[1] or left_padding is not None:
            mask = self.mask(query.size(2), key.size(2), query.device, left_padding)
            mask = mask if context.keep is None else mask & context.keep
            mask = mask | ~mask.any(-1, keepdim=True)  # a padding query may have no key in its window
            return self._attend(query, key, value, mask, context.position.bias(query, key.size(2)), query.size(0))
        heads = self._attend_in_blocks(query, key, value, context)  # (B, H, T, d)
        return heads.transpose(1, 2).flatten(2)

    def _block_sizes(self, query: Tensor) -> tuple[int, int]:
        """The number of queries C in a block, and the number of keys K that a block is compared with."""
        block = min(max(self.radius, MIN_BLOCK_SIZE), query.size(2))
        return block, self.radius + block + (0 if self.causal else self.radius)

    def _attend_in_blocks(
        self, query: Tensor, key: Tensor, value: Tensor, context: LayerContext, global_keys: Tensor | None = None
    ) -> Tensor:
        """(B, H, T, d), (B, H, S, d) twice -> (B, H, T, d).

        One softmax over the keys in the window and those at the positions `global_keys` (m,).
        """
        (block, width), position, length = self._block_sizes(query), context.position, query.size(2)
        padding = -length % block
        q = F.pad(query, (0, 0, 0, padding)).view(*query.shape[:2], -1, block, query.size(3))  # (B, H, N, C, d)
        k, v = (self._key_blocks(x, query) for x in (key, value))  # (B, H, N, K, d)
        distance = distances(torch.arange(self.radius, self.radius + block, device=q.device), width)  # (C, K)
        real = torch.ones(1, 1, key.size(2), 1, dtype=torch.bool, device=q.device)
        real = real if context.keep is None else real & context.keep.transpose(2, 3)  # (B or 1, 1, S, 1)
        local = real if global_keys is None else real.index_fill(2, global_keys, False)  # global keys are scored below
        keep = self._in_window(distance) & self._key_blocks(local, query).transpose(3, 4)
        scores = _scores(q, k, keep, position.bias(q, width, distance))  # (B, H, N, C, K)
        if global_keys is not None:
            more = self._global_scores(query, key, real, position, global_keys)
            more = F.pad(more, (0, 0, 0, padding)).view(*q.shape[:4], len(global_keys))  # (B, H, N, C, m)
            scores = torch.cat((scores, more), -1)
        weights = dropout(scores.softmax(-1), self.rate, self.training)
        heads = weights[..., :width] @ v  # (B, H, N, C, d)
        if global_keys is not None:
            heads = heads + weights[..., width:] @ value[:, :, global_keys].unsqueeze(2)
        return heads.flatten(2, 3)[:, :, :length]

    def _key_blocks(self, x: Tensor, query: Tensor) -> Tensor:
        """(B, H, S, d) -> (B, H, N, K, d): the keys that each block of queries is compared with; zeros at the edges."""
        (block, width), length = self._block_sizes(query), query.size(2)
        last = x[:, :, -(length + self.radius) :]
        before, after = length + self.radius - last.size(2), -length % block + width - block - self.radius
        return F.pad(last, (0, 0, before, after)).unfold(2, width, block).transpose(3, 4)

    def _global_scores(
        self, query: Tensor, key: Tensor, real: Tensor, position: Position, global_keys: Tensor
    ) -> Tensor:
        """-> (B, H, T, m): the scores of the global keys."""
        distance = global_keys - torch.arange(key.size(2) - query.size(2), key.size(2), device=query.device)[:, None]
        keep = real[:, :, global_keys].transpose(2, 3) & ((distance <= 0) | (not self.causal))
        return _scores(query, key[:, :, global_keys], keep, position.bias(query, len(global_keys), distance))


class SparseAttention(WindowAttention):
    """A window, the first g tokens, and the last token of every block of s: n · (r + g + n / s).

    If attention is not causal, the first g tokens attend to all others, too.
    """

    def __init__(self, config: ModelConfig, causal: bool = False) -> None:
        super().__init__(config, causal)
        self.first, self.stride = config.attention_global, config.attention_stride

    def _is_global(self, position: Tensor) -> Tensor:
        return (position < self.first) | (position % self.stride == self.stride - 1)

    def mask(
        self, queries: int, keys: int, device: torch.device | None = None, left_padding: Tensor | None = None
    ) -> Tensor:
        query, key = torch.arange(keys - queries, keys, device=device), torch.arange(keys, device=device)
        distance = distances(query, keys)
        is_global = self._is_global(key if left_padding is None else key - left_padding[:, None, None, None])
        mask = self._in_window(distance) | (is_global & ((distance <= 0) | (not self.causal)))
        return mask if self.causal else mask | (query < self.first)[:, None]

    def _attend_in_blocks(
        self, query: Tensor, key: Tensor, value: Tensor, context: LayerContext, global_keys: Tensor | None = None
    ) -> Tensor:
        positions = torch.arange(key.size(2), device=key.device)
        heads = super()._attend_in_blocks(query, key, value, context, positions[self._is_global(positions)])
        if self.causal or not self.first:
            return heads
        first = query[:, :, : self.first]
        distance = distances(torch.arange(first.size(2), device=key.device), key.size(2))
        bias = context.position.bias(first, key.size(2), distance)
        from_first = attend(first, key, value, context.keep, bias, self.rate if self.training else 0.0)
        return torch.cat((from_first, heads[:, :, self.first :]), 2)


def _scores(query: Tensor, key: Tensor, keep: Tensor, bias: Tensor | None) -> Tensor:
    """Q Kᵀ / √d_k, masked by the lowest finite number instead of -∞: a padding query may have no key at all."""
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    scores = scores if bias is None else scores + bias
    return scores.masked_fill(~keep, torch.finfo(scores.dtype).min)
