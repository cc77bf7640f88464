"""Adam (Kingma and Ba, 2015), with weight decay apart from the gradient (Loshchilov and Hutter, 2019).

The steps are those of `torch.optim.AdamW`, by the function behind it. With the class would come torch's compiler, which
takes seconds to import at every start and is not used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw


class Optimizer(ABC):
    """Moves weights along their gradients; `state` is everything that it remembers of each."""

    def __init__(self) -> None:
        self.state: defaultdict[nn.Parameter, dict[str, Tensor]] = defaultdict(dict)

    @abstractmethod
    def step(self, rate: float) -> None:
        """One step at a learning rate."""


class Adam(Optimizer):
    """A step for each weight by the mean of its gradients over the root of the mean of their squares.

    Matrices decay, but for those that are `spared`.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        betas: tuple[float, float],
        epsilon: float,
        weight_decay: float,
        spared: Sequence[nn.Parameter] = (),
    ) -> None:
        super().__init__()
        self.betas, self.epsilon = betas, epsilon
        matrices = [p for p in parameters if p.dim() > 1 and not any(p is each for each in spared)]
        rest = [p for p in parameters if not any(p is each for each in matrices)]
        self.decays = [(part, decay) for part, decay in ((matrices, weight_decay), (rest, 0.0)) if part]

    @torch.no_grad()
    def step(self, rate: float) -> None:
        for parameters, decay in self.decays:
            states = [self._state(parameter) for parameter in parameters]
            means, squares, steps = ([state[kind] for state in states] for kind in ("exp_avg", "exp_avg_sq", "step"))
            gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
            adamw(
                [*parameters], gradients, means, squares, [], steps,
                fused=True, amsgrad=False, beta1=self.betas[0], beta2=self.betas[1], lr=rate, weight_decay=decay,
                eps=self.epsilon, maximize=False,
            )  # fmt: skip

    def _state(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), device=parameter.device)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        return state
