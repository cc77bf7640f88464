"""Linear attention (Katharopoulos et al., 2020): φ(q) · φ(k) replaces exp(q · k), and the sum over keys comes first.

φ(q) · Σ φ(k) vᵀ costs n · d². The causal sum is a recurrent state of fixed size, so decoding needs no keys and values.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.model.attention.multi_head import MultiHeadAttention
from heedful.model.context import LayerContext
from heedful.model.kv_cache import LayerKVCache

CHUNK_SIZE = 64  # tokens whose scores with each other are computed before they are added to the running sum


class LinearAttention(MultiHeadAttention):
    """Weights φ(q) · φ(k) / Σ φ(q) · φ(k), with the positive feature map φ(x) = elu(x) + 1.

    Sums are computed in float32 or wider. Rotary positions act before the feature map, so weights depend on positions,
    but not on the distance alone.
    """

    def attend_heads(self, query: Tensor, key: Tensor, value: Tensor, context: LayerContext) -> Tensor:
        dtype, cache = query.dtype, context.cache
        with torch.autocast(query.device.type, enabled=False):
            query, key, value = (_to_float32(x) for x in (query, key, value))
            query, key = F.elu(query) + 1, F.elu(key) + 1
            by_weights = self.tapped and not (cache and cache.state)
            if by_weights and cache:
                key, value = cache.append(key, value)
            if context.keep is not None:
                key = key * context.keep.transpose(2, 3)  # (B, 1, S, 1)
            if by_weights:
                heads = self._attend_by_weights(query, key, value)
            elif self.causal:
                heads = self._attend_causally(query, key, value, cache)
            else:
                total = key.transpose(2, 3) @ _with_ones(value)  # (B, H, d, e + 1)
                heads = _normalize(query @ total)
        return heads.to(dtype).transpose(1, 2).flatten(2)

    def _attend_causally(self, query: Tensor, key: Tensor, value: Tensor, cache: LayerKVCache | None) -> Tensor:
        """(B, H, T, d) three times -> (B, H, T, d): all pairs within a chunk, plus the sum over previous chunks."""
        length = query.size(2)
        chunk = min(CHUNK_SIZE, length)
        padding = -length % chunk
        q, k, v = (
            F.pad(x, (0, 0, 0, padding)).view(*x.shape[:2], -1, chunk, x.size(3))
            for x in (query, key, _with_ones(value))
        )  # (B, H, N, C, d); padded keys are zeros after the feature map, so they add nothing
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
        return _normalize((within + q @ before).flatten(2, 3)[:, :, :length])

    def _attend_by_weights(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """The same in quadratic time, with the weights (B, H, T, S) that the taps record."""
        scores = query @ key.transpose(2, 3)
        if self.causal:
            scores = scores.tril(key.size(2) - query.size(2))
        weights = self._tap("weights", query.size(0))(scores / scores.sum(-1, keepdim=True))
        return self._tap("heads", query.size(0))(weights @ value)


def _to_float32(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _with_ones(value: Tensor) -> Tensor:
    """(…, T, e) -> (…, T, e + 1): the sum of the last column is the normalizer."""
    return F.pad(value, (0, 1), value=1.0)


def _normalize(sums: Tensor) -> Tensor:
    """(…, T, e + 1) -> (…, T, e)."""
    return sums[..., :-1] / sums[..., -1:]
