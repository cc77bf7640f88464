"""Losses that a model adds to that of its task: the ponder cost of ACT and the load-balancing loss of experts.

They are computed from what passes through taps in the forward pass, over real tokens only.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.model.baselines.universal import UniversalStack
from heedful.model.feed_forward import MixtureOfExperts, squared_variation
from heedful.model.sentences import sentence_numbers
from heedful.model.transformer import Model
from heedful.ops.cross_entropy import Loss

LossFunction = TypeVar("LossFunction", bound=Callable[..., "Loss"])


def with_auxiliary_losses(read: Callable[[Any], tuple[Tensor, ...]]) -> Callable[[LossFunction], LossFunction]:
    """Add the auxiliary losses of a model to a loss.

    `read` gives the ids that each stack of the model reads, in order; they tell real tokens from padding.
    """

    def decorate(loss_of: LossFunction) -> LossFunction:
        @wraps(loss_of)
        def charged(model: Model, micro_batch: Any, smoothing: float = 0.0, sampled_softmax: int = 0) -> Loss:
            if not (model.config.act_halting or model.config.experts):
                return loss_of(model, micro_batch, smoothing, sampled_softmax)
            stacks = [child for name, child in model.named_children() if name in ("encoder", "decoder")]
            with _record_taps(stacks) as recorded:
                loss = loss_of(model, micro_batch, smoothing, sampled_softmax)
            real = [_real_positions(ids, model.config) for ids in read(micro_batch)]
            if model.config.act_halting:
                loss = _add_ponder_cost(loss, model, stacks, recorded, real)
            return _add_load_balance(loss, model, stacks, recorded, real) if model.config.experts else loss

        return cast(LossFunction, charged)

    return decorate


def _real_positions(ids: Tensor, config: ModelConfig) -> Tensor:
    """(B, S) -> (B, S), or (B, M) if a stack reads M sentences: which positions of a stack are no padding."""
    real = ids != config.pad_id
    if not config.sentence_input:
        return real
    counts = sentence_numbers(ids, real, config).amax(1, keepdim=True).clamp(min=1)
    return torch.arange(int(counts.max()), device=ids.device) < counts


@contextmanager
def _record_taps(stacks: list[nn.Module]) -> Iterator[dict[nn.Module, Tensor]]:
    """Collects what passes through the taps for auxiliary losses, by tap."""
    recorded: dict[nn.Module, Tensor] = {}

    def keep_output(tap: nn.Module, inputs: Any, out: Tensor) -> None:
        recorded[tap] = out

    hooks = []
    for module in (module for stack in stacks for module in stack.modules()):
        taps = [module.gates, module.load] if isinstance(module, MixtureOfExperts) else []
        taps += [module.ponder] if isinstance(module, UniversalStack) and module.halt is not None else []
        hooks += [tap.register_forward_hook(keep_output) for tap in taps]
    try:
        yield recorded
    finally:
        for hook in hooks:
            hook.remove()


def _add_ponder_cost(
    loss: Loss, model: Model, stacks: list[nn.Module], recorded: dict[nn.Module, Tensor], real: list[Tensor]
) -> Loss:
    """The cost of a token is its number of steps plus its remainder (Graves, 2016); the remainder has a gradient.

    Where a text has one label, its cost is the mean of its tokens': otherwise that of long texts would exceed the loss.
    """
    times = [recorded[stack.ponder] for stack in stacks if isinstance(stack, UniversalStack)]
    spent = torch.cat([time[mask] for time, mask in zip(times, real, strict=True)])  # (N)
    steps = (spent.detach() - 1e-4).floor().sum()  # without the remainders, at most 1 each
    pondered = torch.stack((steps, steps.new_tensor(float(len(spent)))))
    cost = spent.sum()
    if loss.tokens == len(real[0]):  # one label per text
        cost = torch.cat([(time * mask).sum(1) / mask.sum(1) for time, mask in zip(times, real, strict=True)]).sum()
    return replace(loss, smoothed=loss.smoothed + model.config.ponder_cost * cost, pondered=pondered)


def _add_load_balance(
    loss: Loss, model: Model, stacks: list[nn.Module], recorded: dict[nn.Module, Tensor], real: list[Tensor]
) -> Loss:
    """The weight times (CV(importance)² + CV(load)²), per layer and token (Shazeer et al., 2017).

    The importance of an expert is the sum of its gates over a batch, its load the expected number of its tokens.
    """
    costs, busiest = [], []
    for stack, mask in zip(stacks, real, strict=True):
        for layer in (module for module in stack.modules() if isinstance(module, MixtureOfExperts)):
            if layer.gates not in recorded:
                continue  # a step that no token of the batch took
            gates, load = recorded[layer.gates][mask].float(), recorded[layer.load][mask].float()  # (N, E)
            costs.append(squared_variation(gates.sum(0)) + squared_variation(load.sum(0)))
            used = (gates.detach() > 0).sum(0)
            busiest.append(used.max() / used.sum())
    cost = model.config.load_balance * loss.tokens * torch.stack(costs).sum()
    use = torch.stack((torch.stack(busiest).sum(), busiest[0].new_tensor(float(len(busiest)))))
    return replace(loss, smoothed=loss.smoothed + cost, expert_use=use)
