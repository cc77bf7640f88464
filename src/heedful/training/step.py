"""One update: micro-batches -> gradients -> weights.

The gradient of an update is the sum over its real tokens divided by their number, over all micro-batches and ranks.
Random numbers follow from the seed, the update and the micro-batch, so an update is reproducible anywhere.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from heedful.config import TrainSettings
from heedful.errors import TrainingError
from heedful.model.transformer import Embedding
from heedful.native.adam_step import adam_step_for
from heedful.native.muon_step import newton_schulz_for
from heedful.ops.adamw import adam_step
from heedful.ops.cross_entropy import Loss
from heedful.ops.newton_schulz import newton_schulz
from heedful.training.distributed import Distributed
from heedful.training.optim.adam import Adam, Optimizer
from heedful.training.optim.muon import Muon, layer_matrices

M = TypeVar("M")  # a micro-batch of any task


@dataclass(frozen=True)
class StepResult:
    """Result of one update: means over the real tokens of its batch."""

    loss: float
    tokens: int
    norm: float
    interrupted: bool
    ponder: float | None = None  # steps per token with adaptive computation time
    busiest_expert: float | None = None  # its share of the tokens of a layer, in percent; mean over layers


class Gradients:
    """All gradients of a model in one flat tensor, followed by sums that are reduced with them."""

    SUMS = 6  # loss, interrupted ranks, steps and number of halting tokens, share of the busiest experts and layers

    def __init__(self, model: nn.Module) -> None:
        parameters = [p for p in model.parameters() if p.requires_grad]
        sizes = [p.numel() for p in parameters]
        self.flat = torch.zeros(sum(sizes) + self.SUMS, device=parameters[0].device)
        self.weights = self.flat[: -self.SUMS]
        self.sums = self.flat[-self.SUMS :]
        for parameter, part in zip(parameters, torch.split(self.weights, sizes), strict=True):
            parameter.grad = part.view_as(parameter)

    def clear(self) -> None:
        self.flat.zero_()


def build_optimizer(model: nn.Module, settings: TrainSettings) -> Optimizer:
    """Adam as in section 5.3 of the paper, or Muon; weight decay applies to matrices only, not to frozen embeddings."""
    matrices = layer_matrices(model) if settings.optimizer == "muon" else []
    rest = [p for p in model.parameters() if p.requires_grad and not any(p is matrix for matrix in matrices)]
    frozen = [m.weight for m in model.modules() if isinstance(m, Embedding)] if settings.freeze_embeddings else []
    step = adam_step if settings.backend == "torch" else adam_step_for(rest)
    adam = Adam(rest, (settings.beta1, settings.beta2), settings.epsilon, settings.weight_decay, frozen, step)
    if not matrices:
        return adam
    orthogonalize = newton_schulz if settings.backend == "torch" else newton_schulz_for(matrices[0], settings.precision)
    return Muon(matrices, settings.weight_decay, adam, orthogonalize)


def apply_update(
    micro_batches: Sequence[tuple[int, M]],
    loss_of: Callable[[M], Loss],
    gradients: Gradients,
    optimizer: Optimizer,
    distributed: Distributed,
    *,
    settings: TrainSettings,
    update: int,
    tokens: int,
    rate: float,
    interrupted: bool = False,
) -> StepResult:
    """Accumulate gradients over the numbered micro-batches of this rank, sum over ranks, clip, and step.

    `tokens` counts the real target tokens of the whole batch, all ranks included.
    """
    gradients.clear()
    for number, micro_batch in micro_batches:
        _seed_generator(_seed(settings.seed, update, number), distributed.device)
        loss = loss_of(micro_batch)
        (loss.smoothed / tokens).backward()  # type: ignore[no-untyped-call]
        gradients.sums[0] += loss.smoothed.detach()
        if loss.pondered is not None:
            gradients.sums[2:4] += loss.pondered
        if loss.expert_use is not None:
            gradients.sums[4:] += loss.expert_use
    gradients.sums[1] += float(interrupted)
    distributed.sum(gradients.flat)
    smoothed, interruptions, steps, halted, busiest, layers = (float(value) for value in gradients.sums.tolist())
    norm = float(gradients.weights.norm())
    _check_finite(smoothed / tokens, norm, update)
    if settings.clip_norm and norm > settings.clip_norm:
        gradients.weights.mul_(settings.clip_norm / norm)
    optimizer.step(rate)
    ponder, share = steps / halted if halted else None, 100 * busiest / layers if layers else None
    return StepResult(smoothed / tokens, tokens, norm, interruptions > 0, ponder, share)


def freeze_rows(weight: Tensor, rows: Tensor) -> None:
    """Freeze some rows of a parameter: their gradient is always zero."""
    trainable = torch.ones(len(weight), 1)
    trainable[rows] = 0.0
    weight.register_hook(lambda gradient: gradient * trainable.to(gradient.device))  # type: ignore[no-untyped-call]


def _seed_generator(seed: int, device: torch.device) -> None:
    """Seed the random numbers of a device: on a CPU its generator alone.

    `torch.manual_seed` seeds all kinds of devices. For each kind that is not in use, it formats a stack trace, which
    takes half a millisecond in all.
    """
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


def _seed(seed: int, update: int, number: int) -> int:
    """Hash of the three (the finalizer of SplitMix64)."""
    mixed = (seed << 40) ^ (update << 12) ^ number
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = ((mixed ^ (mixed >> shift)) * factor) & (2**64 - 1)
    return (mixed ^ (mixed >> 31)) & (2**63 - 1)


def _check_finite(loss: float, norm: float, update: int) -> None:
    if not (abs(loss) < float("inf") and norm < float("inf")):
        raise TrainingError(
            f"The loss is {loss:g} and the gradient's norm {norm:g} at update {update}: training stopped before the "
            "weights were changed, and the last checkpoint is intact; lower train.learning_rate or set train.clip_norm."
        )
