"""Masks are data: True = may attend.

Masks broadcast to scores `(B, H, T, S)` and are combined by `&`. They are aligned to the bottom right: the last query
is at the position of the last key, with or without a KV cache.
"""

import torch
from torch import Tensor


def not_padding(ids: Tensor, pad_id: int) -> Tensor:
    """(B, S) -> (B, 1, 1, S): queries may attend to real tokens only."""
    return (ids != pad_id)[:, None, None, :]


def causal(queries: int, keys: int, device: torch.device | None = None) -> Tensor:
    """-> (1, 1, T, S): a query may attend to its own and earlier positions."""
    return torch.ones(1, 1, queries, keys, dtype=torch.bool, device=device).tril(keys - queries)
