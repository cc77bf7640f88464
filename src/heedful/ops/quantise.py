"""Matrices of 8 bits: whole numbers of at most 64, times a scale of their row.

64 and not 127, so that the products of every CPU have room for them (native/products.h, which reduces in the same way).
The largest number of a row becomes 64 exactly, so what was restored is reduced to the same whole numbers again.
"""

import torch
from torch import Tensor

MOST = 64


def reduce(weight: Tensor) -> tuple[Tensor, Tensor]:
    """(N, …) -> (N, …) whole numbers in int8 and (N,) scales in float32."""
    rows = weight.detach().float().flatten(1)
    bound = rows.abs().amax(1)
    factor = MOST / bound
    factor[factor.isinf()] = 0  # rows of nothing, or of next to nothing
    whole = (rows * factor.unsqueeze(1)).round().to(torch.int8)
    return whole.view(weight.shape), bound / MOST


def restore(whole: Tensor, scale: Tensor) -> Tensor:
    """(N, …) whole numbers and (N,) scales -> (N, …) in float32."""
    return whole.float().mul_(scale.view(-1, *[1] * (whole.dim() - 1)))
