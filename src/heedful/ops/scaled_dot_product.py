"""Scaled dot-product attention (section 3.2.1 of the paper), plain and fused.

On a CPU the plain body is faster for sentences; `torch`'s fused kernel is faster for large score matrices and on a GPU.
"""

import math
from collections.abc import Callable
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from heedful.ops.dropout import dropout

FUSED_FROM = 1024 * 1024  # T * S from which the fused kernel is faster on a CPU
# Without cuDNN's kernel: it is compiled again for every shape, and batches have many shapes.
KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    keep: Tensor | None = None,
    bias: Tensor | None = None,
    rate: float = 0.0,
) -> Tensor:
    """(B, H, T, d), (B, H, S, d), (B, H, S, e) -> (B, H, T, e).

    `keep` is True where a query may attend to a key; `bias` is added to the scaled scores; `rate` drops weights.
    """
    fused = query.device.type != "cpu" or query.size(-2) * key.size(-2) >= FUSED_FROM
    return (attend_fused if fused else attend_plain)(query, key, value, keep, bias, rate)


def attend_plain(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    keep: Tensor | None = None,
    bias: Tensor | None = None,
    rate: float = 0.0,
    tap: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """softmax(Q Kᵀ / √d_k) V as in the paper; `tap` may record or replace the weights.

    Scaling the queries and adding the mask is cheaper than scaling and filling the scores.
    """
    scores = (query / math.sqrt(query.size(-1))) @ key.transpose(-2, -1)  # (B, H, T, S)
    mask = additive_mask(keep, bias, scores.dtype)
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
    """The same by `torch`'s fused kernel, which never materializes the scores."""
    mask = keep if bias is None else additive_mask(keep, bias, query.dtype)
    with sdpa_kernel(KERNELS) if query.device.type == "cuda" else nullcontext():
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=rate)


def additive_mask(keep: Tensor | None, bias: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Mask and bias as one tensor to add to the scores: -∞ where a query may not attend."""
    if keep is None:
        return bias
    if bias is None:
        return torch.zeros(keep.shape, dtype=dtype, device=keep.device).masked_fill_(~keep, -math.inf)
    return torch.where(keep, bias, -math.inf)
