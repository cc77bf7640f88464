"""One step of Adam (Kingma and Ba, 2015) with decoupled weight decay (Loshchilov and Hutter, 2019), by torch.

It calls the function behind `torch.optim.AdamW`: the class itself imports torch.compile, which takes seconds.
`native.adam_step` is the same by the compiled engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor
from torch.optim.adamw import adamw


@dataclass(frozen=True)
class AdamTensors:
    """Weights, their gradients and their state; each list has one contiguous tensor per weight."""

    weights: Sequence[Tensor]
    gradients: Sequence[Tensor]
    means: Sequence[Tensor]  # exponential moving averages of the gradient
    squares: Sequence[Tensor]  # and of its square
    updates: Sequence[Tensor]  # numbers of updates, (), float32


class AdamStep(Protocol):
    """Updates weights and state in place."""

    def __call__(
        self, tensors: AdamTensors, rate: float, betas: tuple[float, float], epsilon: float, decay: float
    ) -> None: ...


def adam_step(tensors: AdamTensors, rate: float, betas: tuple[float, float], epsilon: float, decay: float) -> None:
    adamw(
        [*tensors.weights], [*tensors.gradients], [*tensors.means], [*tensors.squares], [], [*tensors.updates],
        fused=True, amsgrad=False, beta1=betas[0], beta2=betas[1], lr=rate, weight_decay=decay, eps=epsilon,
        maximize=False,
    )  # fmt: skip
