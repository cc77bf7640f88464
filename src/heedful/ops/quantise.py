"""Matrices of 8 bits: whole numbers of at most 64, times a scale of their row.

64 and not 127, so that the products of every CPU have room for them (native/products.h, which reduces in the same way).
The largest number of a row becomes 64 exactly, so what was restored is reduced to the same whole numbers again.
"""

import torch
from torch import Tensor

MOST = 64
ROWS = 1024  # that are reduced at once, in little memory


def reduce(weight: Tensor) -> tuple[Tensor, Tensor]:
    """(N, …) -> (N, …) whole numbers in int8 and (N,) scales in float32."""
    whole, scale = torch.empty(weight.shape, dtype=torch.int8), torch.empty(len(weight))
    pieces = (torch.split(each, ROWS) for each in (weight.detach(), whole, scale))
    for some, to, scales in zip(*pieces, strict=True):
        rows = some.float().flatten(1)
        bound = rows.abs().amax(1)
        factor = MOST / bound
        factor[factor.isinf()] = 0  # rows of nothing, or of next to nothing
        to.flatten(1).copy_((rows * factor.unsqueeze(1)).round_())
        scales.copy_(bound / MOST)
    return whole, scale


def restore(whole: Tensor, scale: Tensor) -> Tensor:
    """(N, …) whole numbers and (N,) scales -> (N, …) in float32."""
    return whole.float().mul_(scale.view(-1, *[1] * (whole.dim() - 1)))
