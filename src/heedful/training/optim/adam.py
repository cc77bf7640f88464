"""Adam (Kingma and Ba, 2015) with decoupled weight decay (Loshchilov and Hutter, 2019)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from heedful.ops.adamw import AdamStep, AdamTensors, adam_step


class Optimizer(ABC):
    """Updates weights from their gradients; `state` holds the moments of each weight."""

    def __init__(self) -> None:
        self.state: defaultdict[nn.Parameter, dict[str, Tensor]] = defaultdict(dict)

    @abstractmethod
    def step(self, rate: float) -> None:
        """Update all weights with learning rate `rate`."""


class Adam(Optimizer):
    """Adam; weight decay applies to matrices, except those in `no_decay`."""

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        betas: tuple[float, float],
        epsilon: float,
        weight_decay: float,
        no_decay: Sequence[nn.Parameter] = (),
        adam_step: AdamStep = adam_step,
    ) -> None:
        super().__init__()
        self.betas, self.epsilon, self.adam_step = betas, epsilon, adam_step
        matrices = [p for p in parameters if p.dim() > 1 and not any(p is other for other in no_decay)]
        rest = [p for p in parameters if not any(p is matrix for matrix in matrices)]
        self.decays = [(part, decay) for part, decay in ((matrices, weight_decay), (rest, 0.0)) if part]

    @torch.no_grad()
    def step(self, rate: float) -> None:
        for parameters, decay in self.decays:
            states = [self._state(parameter) for parameter in parameters]
            means, squares, steps = ([state[kind] for state in states] for kind in ("exp_avg", "exp_avg_sq", "step"))
            gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
            tensors = AdamTensors(parameters, gradients, means, squares, steps)
            self.adam_step(tensors, rate, self.betas, self.epsilon, decay)

    def _state(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), device=parameter.device)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        return state
