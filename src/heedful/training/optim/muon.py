"""Muon (Jordan et al., 2024): momentum with orthogonalized updates, for the weight matrices of the layers.

All singular values of an update are about equal, while Adam's updates follow the few largest: the same loss takes less
data and fewer updates. Adam updates everything else (embeddings, norms, biases).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from heedful.ops.newton_schulz import newton_schulz
from heedful.training.optim.adam import Adam, Optimizer

MOMENTUM = 0.95
ADAM_RMS = 0.2  # root mean square of Adam's usual updates, so that rates mean the same for both (Liu et al., 2025)


class Muon(Optimizer):
    """Orthogonalized updates for `matrices`, `adam` for the other weights, with one learning rate."""

    def __init__(
        self,
        matrices: Sequence[nn.Parameter],
        weight_decay: float,
        adam: Adam,
        orthogonalize: Callable[[Tensor], Tensor] = newton_schulz,
    ) -> None:
        super().__init__()
        self.weight_decay, self.adam, self.orthogonalize = weight_decay, adam, orthogonalize
        self.adam.state = self.state
        self.by_shape: dict[torch.Size, list[nn.Parameter]] = {}
        for matrix in matrices:
            self.by_shape.setdefault(matrix.shape, []).append(matrix)

    @torch.no_grad()
    def step(self, rate: float) -> None:
        self.adam.step(rate)
        for shape, matrices in self.by_shape.items():  # matrices of one shape in one batched product
            steps = self.orthogonalize(torch.stack(self._directions(matrices)))
            weights: list[Tensor] = [*matrices]
            torch._foreach_mul_(weights, 1 - rate * self.weight_decay)
            torch._foreach_add_(weights, steps.unbind(), alpha=-rate * ADAM_RMS * max(shape) ** 0.5)

    def _directions(self, matrices: Sequence[nn.Parameter]) -> tuple[Tensor, ...]:
        """Nesterov momentum of the gradients."""
        gradients, momenta = [], []
        for matrix in matrices:
            assert matrix.grad is not None
            state = self.state[matrix]
            if not state:
                state["momentum"] = torch.zeros_like(matrix)
            gradients.append(matrix.grad)
            momenta.append(state["momentum"])
        torch._foreach_lerp_(momenta, gradients, 1 - MOMENTUM)
        return tuple(torch._foreach_lerp(gradients, momenta, MOMENTUM))


def layer_matrices(model: nn.Module) -> list[nn.Parameter]:
    """Weight matrices of encoder and decoder layers: no embeddings, positions, output projection or classifier."""
    stacks = [stack for name, stack in model.named_children() if name in ("encoder", "decoder")]
    weights = [module.weight for stack in stacks for module in stack.modules() if isinstance(module, nn.Linear)]
    unique = dict.fromkeys(weight for weight in weights if isinstance(weight, nn.Parameter))  # layers may share weights
    return [weight for weight in unique if min(weight.shape) > 1 and weight.requires_grad]
