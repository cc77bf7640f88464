"""Masks are data: True = may attend.

Each broadcasts against scores `(B, H, T, S)`, and `&` combines them. They are aligned to the bottom right, so the last
query always stands at the last key, whether or not the earlier ones are in a cache.
"""

import torch
from torch import Tensor


def not_padding(ids: Tensor, pad_id: int) -> Tensor:
    """(B, S) -> (B, 1, 1, S): every query may attend to real tokens only."""
    return (ids != pad_id)[:, None, None, :]


def causal(queries: int, keys: int, device: torch.device | None = None) -> Tensor:
    """-> (1, 1, T, S): a query may attend to itself and to what came before."""
    return torch.ones(1, 1, queries, keys, dtype=torch.bool, device=device).tril(keys - queries)
