"""Scaled dot-product attention (section 3.2.1 of the paper), plain and fused.

For sentences the plain body is the faster one on a CPU; `torch`'s fused kernel wins when the matrix of scores is large,
and on a GPU.
"""

import math
from collections.abc import Callable
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from heedful.ops.dropout import dropout

FUSED_FROM = 1024 * 1024  # scores in one head's matrix from which the fused kernel pays on a CPU
# Of those for GPUs, cuDNN's is made anew for each shape, and batches are of all shapes.
KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    keep: Tensor | None = None,
    bias: Tensor | None = None,
    rate: float = 0.0,
    tap: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """(B, H, T, d), (B, H, S, d), (B, H, S, e) -> (B, H, T, e).

    `keep` is True where a query may attend to a key; `bias` is added to the scaled scores; `rate` is the dropout on the
    weights; `tap` sees the weights, and may replace them.
    """
    if tap is None and (query.device.type != "cpu" or query.size(-2) * key.size(-2) >= FUSED_FROM):
        return attend_fused(query, key, value, keep, bias, rate)
    return attend_plain(query, key, value, keep, bias, rate, tap)


def attend_plain(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    keep: Tensor | None = None,
    bias: Tensor | None = None,
    rate: float = 0.0,
    tap: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """softmax(Q Kᵀ / √d_k) V, as the paper has it; the queries are scaled and the mask is added, which is cheapest."""
    scores = (query / math.sqrt(query.size(-1))) @ key.transpose(-2, -1)  # (B, H, T, S)
    mask = added(keep, bias, scores.dtype)
    if mask is not None:
        scores += mask
    weights = scores.softmax(dim=-1)
    if tap is not None:
        weights = tap(weights)
    return dropout(weights, rate, training=True) @ value


def attend_fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    keep: Tensor | None = None,
    bias: Tensor | None = None,
    rate: float = 0.0,
) -> Tensor:
    """The same by `torch`'s kernel, which never holds all scores at once."""
    mask = keep if bias is None else added(keep, bias, query.dtype)
    with sdpa_kernel(KERNELS) if query.device.type == "cuda" else nullcontext():
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=rate)


def added(keep: Tensor | None, bias: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """A mask and a bias as the one thing that is added to scores: -∞ where a query may not attend."""
    if keep is None:
        return bias
    if bias is None:
        return torch.zeros(keep.shape, dtype=dtype, device=keep.device).masked_fill_(~keep, -math.inf)
    return torch.where(keep, bias, -math.inf)
