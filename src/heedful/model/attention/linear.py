"""Linear attention (Katharopoulos et al., 2020): exp(q · k) becomes φ(q) · φ(k), and the sum over keys comes first.

φ(q) · Σ φ(k) vᵀ costs n · d², and a causal sum can be carried from token to token: a Transformer that is an RNN.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.model.attention.multi_head import MultiHeadAttention
from heedful.model.cache import LayerCache
from heedful.model.positions import Position

CHUNK = 64  # tokens that are compared with each other before they enter the sum


class LinearAttention(MultiHeadAttention):
    """Weights φ(q) · φ(k) / Σ φ(q) · φ(k), with the positive feature map φ(x) = elu(x) + 1.

    Sums are kept in single precision at least. Rotary positions turn queries and keys before the map, which tells
    places apart but not by their distance alone.
    """

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
        with torch.autocast(x.device.type, enabled=False):
            query, key, value = (_single(each) for each in (query, key, value))
            query, key = F.elu(query) + 1, F.elu(key) + 1
            if keep is not None:
                key = key * keep.transpose(2, 3)  # (B, 1, S, 1)
            if any(self._listeners) and not (cache and cache.state):
                heads = self._listened(x, query, key, value, cache)
            elif self.causal:
                heads = self._causal(query, key, value, cache)
            else:
                total = key.transpose(2, 3) @ _with_ones(value)  # (B, H, d, e + 1)
                heads = _divided(query @ total)
        return heads.to(x.dtype).transpose(1, 2).flatten(2)

    def _causal(self, query: Tensor, key: Tensor, value: Tensor, cache: LayerCache | None) -> Tensor:
        """(B, H, T, d) thrice -> (B, H, T, d): within a chunk all pairs, and the sum of the chunks before it."""
        length = query.size(2)
        chunk = min(CHUNK, length)
        fill = -length % chunk
        q, k, v = (
            F.pad(each, (0, 0, 0, fill)).view(*each.shape[:2], -1, chunk, each.size(3))
            for each in (query, key, _with_ones(value))
        )  # (B, H, N, C, d); zeros are no features of any key, so they add nothing
        sums = k.transpose(3, 4) @ v  # (B, H, N, d, e + 1)
        if cache and cache.state:
            sums = torch.cat((cache.state[0].unsqueeze(2), sums), 2).cumsum(2)
            before, after = sums[:, :, :-1], sums[:, :, -1]
        else:
            sums = sums.cumsum(2)
            before, after = F.pad(sums[:, :, :-1], (0, 0, 0, 0, 1, 0)), sums[:, :, -1]
        if cache:
            cache.advance(length, after)
        within = (q @ k.transpose(3, 4)).tril() @ v
        return _divided((within + q @ before).flatten(2, 3)[:, :, :length])

    def _listened(self, x: Tensor, query: Tensor, key: Tensor, value: Tensor, cache: LayerCache | None) -> Tensor:
        """The same by the weights themselves, (B, H, T, S)."""
        if cache:
            key, value = cache.append(key, value)
        scores = query @ key.transpose(2, 3)
        if self.causal:
            scores = scores.tril(key.size(2) - query.size(2))
        weights = scores / scores.sum(-1, keepdim=True)
        heads: Tensor = self._tap("weights", x)(weights.to(x.dtype)) @ value.to(x.dtype)
        return self._tap("heads", x)(heads)


def _single(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _with_ones(value: Tensor) -> Tensor:
    """(…, T, e) -> (…, T, e + 1): the last column sums up to the divisor."""
    return F.pad(value, (0, 1), value=1.0)


def _divided(sums: Tensor) -> Tensor:
    """(…, T, e + 1) -> (…, T, e)."""
    return sums[..., :-1] / sums[..., -1:]
