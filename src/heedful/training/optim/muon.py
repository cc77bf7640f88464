"""Muon (Jordan et al., 2024): momentum whose steps are made orthogonal, for the matrices between the layers.

The step of a matrix has all its directions of about equal length, where Adam's follow the few strongest: less data and
fewer updates lead to the same loss. What is not such a matrix (embeddings, norms, biases) is left to Adam.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from heedful.ops.newton_schulz import newton_schulz
from heedful.training.optim.adam import Adam, Optimizer

MOMENTUM = 0.95
LIKE_ADAM = 0.2  # the root mean square of Adam's usual steps: rates mean the same for both (Liu et al., 2025)


class Muon(Optimizer):
    """Orthogonal steps for `matrices`, Adam's for the rest, by one rate."""

    def __init__(
        self,
        matrices: Sequence[nn.Parameter],
        weight_decay: float,
        rest: Adam,
        orthogonal: Callable[[Tensor], Tensor] = newton_schulz,
    ) -> None:
        super().__init__()
        self.weight_decay, self.rest, self.orthogonal = weight_decay, rest, orthogonal
        self.rest.state = self.state
        self.alike: dict[torch.Size, list[nn.Parameter]] = {}
        for matrix in matrices:
            self.alike.setdefault(matrix.shape, []).append(matrix)

    @torch.no_grad()
    def step(self, rate: float) -> None:
        self.rest.step(rate)
        for shape, matrices in self.alike.items():  # of one shape in one product
            steps = self.orthogonal(torch.stack(self._directions(matrices)))
            weights: list[Tensor] = [*matrices]
            torch._foreach_mul_(weights, 1 - rate * self.weight_decay)
            torch._foreach_add_(weights, steps.unbind(), alpha=-rate * LIKE_ADAM * max(shape) ** 0.5)

    def _directions(self, matrices: Sequence[nn.Parameter]) -> tuple[Tensor, ...]:
        """The means of past gradients, looking ahead as Nesterov does."""
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


def between_layers(model: nn.Module) -> list[nn.Parameter]:
    """The matrices of the layers: neither embeddings nor positions nor what projects onto a vocabulary or labels."""
    layers = [each for name, each in model.named_children() if name in ("encoder", "decoder")]
    weights = [each.weight for part in layers for each in part.modules() if isinstance(each, nn.Linear)]
    once = dict.fromkeys(each for each in weights if isinstance(each, nn.Parameter))  # some layers share theirs
    return [each for each in once if min(each.shape) > 1 and each.requires_grad]
