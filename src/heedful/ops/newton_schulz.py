"""Newton-Schulz orthogonalization, for Muon: singular vectors stay, singular values become approximately 1."""

import torch
from torch import Tensor

QUINTIC = (3.4445, -4.7750, 2.0315)  # x -> ax + bx³ + cx⁵ maps (0, 1] close to 1 within a few rounds
ROUNDS = 5


def newton_schulz(matrices: Tensor) -> Tensor:
    """(N, A, B) -> (N, A, B), N matrices at once."""
    if matrices.size(1) > matrices.size(2):
        return newton_schulz(matrices.mT).mT
    a, b, c = QUINTIC
    x: Tensor = matrices / matrices.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(ROUNDS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x
