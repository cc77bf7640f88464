"""Attention to near tokens, and to a few far ones: time and memory grow with n · r, not with n².

A window is what section 4 of the paper calls restricted self-attention. Sparse attention adds tokens that all others
see: the first ones, as in Longformer (Beltagy et al., 2020), and the last one of every block, as in the fixed pattern
of Sparse Transformers (Child et al., 2019).
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.config import ModelConfig
from heedful.model.attention.multi_head import MultiHeadAttention
from heedful.model.cache import LayerCache
from heedful.model.positions import Position, distances
from heedful.ops.dropout import dropout
from heedful.ops.scaled_dot_product import attend

LEAST_BLOCK = 8  # queries that are computed together even if the window is narrower


class WindowAttention(MultiHeadAttention):
    """Each token sees itself and r tokens on each side, or before it where attention is causal.

    Queries are cut into blocks, and each block is compared with the keys from r before its first to r behind its last.
    """

    def __init__(self, config: ModelConfig, causal: bool = False) -> None:
        super().__init__(config, causal)
        self.reach = config.attention_window
        self.block = max(self.reach, LEAST_BLOCK)

    def visible(
        self, queries: int, keys: int, device: torch.device | None = None, skipped: Tensor | None = None
    ) -> Tensor:
        """-> (T, S): the mask that full attention would need for the same result, aligned to the bottom right.

        Where rows skip (B,) places before their first token, it may be another one for each: (B, 1, T, S).
        """
        return self._near(distances(torch.arange(keys - queries, keys, device=device), keys))

    def _near(self, distance: Tensor) -> Tensor:
        return distance.abs() <= self.reach if not self.causal else (distance <= 0) & (distance >= -self.reach)

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
        if cache:
            key, value = cache.append(key, value)
        block = min(self.block, query.size(2))
        width = self.reach + block + (0 if self.causal else self.reach)  # keys that a block of queries is compared with
        skipped = cache.skipped if cache else None
        if any(self._listeners) or key.size(2) <= width or skipped is not None:
            visible = self.visible(query.size(2), key.size(2), x.device, skipped)
            visible = visible if keep is None else visible & keep
            visible = visible | ~visible.any(-1, keepdim=True)  # padding may see nothing at all
            return self._attend(x, query, key, value, visible, position.bias(query, key.size(2)))
        heads = self._blocked(query, key, value, keep, position, (block, width))  # (B, H, T, d)
        return heads.transpose(1, 2).flatten(2)

    def _blocked(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        keep: Tensor | None,
        position: Position,
        size: tuple[int, int],
        shared: Tensor | None = None,
    ) -> Tensor:
        """(B, H, T, d), (B, H, S, d) twice -> (B, H, T, d).

        One softmax over the near keys and, if there are any, over those at the `shared` places (m,) that all see.
        """
        (block, width), length, keys = size, query.size(2), key.size(2)
        fill = -length % block
        q = F.pad(query, (0, 0, 0, fill)).view(*query.shape[:2], -1, block, query.size(3))  # (B, H, N, C, d)
        k, v = (self._bands(each, length + fill, fill, size) for each in (key, value))  # (B, H, N, K, d)
        distance = distances(torch.arange(self.reach, self.reach + block, device=q.device), width)  # (C, K)
        real = torch.ones(1, 1, keys, 1, dtype=torch.bool, device=q.device)
        real = real if keep is None else real & keep.transpose(2, 3)  # (B or 1, 1, S, 1)
        near = real if shared is None else real.index_fill(2, shared, False)  # those have their turn below
        seen = self._near(distance) & self._bands(near, length + fill, fill, size).transpose(3, 4)
        scores = _scores(q, k, seen, position.bias(q, width, distance))  # (B, H, N, C, K)
        if shared is not None:
            more = self._shared(query, key, real, position, shared)
            more = F.pad(more, (0, 0, 0, fill)).view(*q.shape[:4], len(shared))  # (B, H, N, C, m)
            scores = torch.cat((scores, more), -1)
        weights = dropout(scores.softmax(-1), self.rate, self.training)
        heads = weights[..., :width] @ v  # (B, H, N, C, d)
        if shared is not None:
            heads = heads + weights[..., width:] @ value[:, :, shared].unsqueeze(2)
        return heads.flatten(2, 3)[:, :, :length]

    def _bands(self, x: Tensor, length: int, fill: int, size: tuple[int, int]) -> Tensor:
        """(B, H, S, d) -> (B, H, N, K, d): the keys near each block of the last queries; zeros beyond the edges."""
        block, width = size
        near = x[:, :, -(length - fill + self.reach) :]
        before, behind = length - fill + self.reach - near.size(2), fill + width - block - self.reach
        return F.pad(near, (0, 0, before, behind)).unfold(2, width, block).transpose(3, 4)

    def _shared(self, query: Tensor, key: Tensor, real: Tensor, position: Position, shared: Tensor) -> Tensor:
        """-> (B, H, T, m): the scores of the shared keys."""
        distance = shared - torch.arange(key.size(2) - query.size(2), key.size(2), device=query.device)[:, None]
        seen = real[:, :, shared].transpose(2, 3) & ((distance <= 0) | (not self.causal))
        return _scores(query, key[:, :, shared], seen, position.bias(query, len(shared), distance))


class SparseAttention(WindowAttention):
    """A window, the first g tokens, and the last token of every block of s: n · (r + g + n / s).

    Where attention is not causal, the first g tokens see all others, too.
    """

    def __init__(self, config: ModelConfig, causal: bool = False) -> None:
        super().__init__(config, causal)
        self.first, self.stride = config.attention_global, config.attention_stride

    def shared(self, keys: int, device: torch.device | None = None) -> Tensor:
        """-> (m,): the places that all tokens see."""
        place = torch.arange(keys, device=device)
        return place[self._shares(place)]

    def _shares(self, place: Tensor) -> Tensor:
        return (place < self.first) | (place % self.stride == self.stride - 1)

    def visible(
        self, queries: int, keys: int, device: torch.device | None = None, skipped: Tensor | None = None
    ) -> Tensor:
        here, place = torch.arange(keys - queries, keys, device=device), torch.arange(keys, device=device)
        distance = distances(here, keys)
        shared = self._shares(place if skipped is None else place - skipped[:, None, None, None])
        visible = self._near(distance) | (shared & ((distance <= 0) | (not self.causal)))
        return visible if self.causal else visible | (here < self.first)[:, None]

    def _blocked(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        keep: Tensor | None,
        position: Position,
        size: tuple[int, int],
        shared: Tensor | None = None,
    ) -> Tensor:
        heads = super()._blocked(query, key, value, keep, position, size, self.shared(key.size(2), key.device))
        if self.causal or not self.first:
            return heads
        some = query[:, :, : self.first]
        bias = position.bias(some, key.size(2), distances(torch.arange(some.size(2), device=key.device), key.size(2)))
        seeing_all = attend(some, key, value, keep, bias, self.rate if self.training else 0.0)
        return torch.cat((seeing_all, heads[:, :, self.first :]), 2)


def _scores(query: Tensor, key: Tensor, seen: Tensor, bias: Tensor | None) -> Tensor:
    """Q Kᵀ / √d_k, very low where nothing is to be seen; not -∞, since padding may see nothing at all."""
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    scores = scores if bias is None else scores + bias
    return scores.masked_fill(~seen, torch.finfo(scores.dtype).min)
