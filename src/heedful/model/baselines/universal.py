"""The Universal Transformer (Dehghani et al., 2019): depth is recurrence, one block applied again and again.

With halting, each token decides for itself when it is done (adaptive computation time; Graves, 2016).
"""

from typing import Any

import torch
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.model.block import Block, Stack
from heedful.model.cache import Cache
from heedful.model.positions import tabulated
from heedful.ops import position_tables

ENOUGH = 0.99  # of its weight that a token has given out when it is done


class UniversalStack(Stack):
    """A stack whose blocks share all weights; positions, and the number of the step, are added before each step.

    Step n is still the submodule named `n`, so that everything in it has a name of its own; only the first is saved.
    """

    def __init__(self, config: ModelConfig, n_layers: int, cross: bool = False, causal: bool = False) -> None:
        super().__init__(config, n_layers, cross, causal)
        first, *others = self.blocks
        for block in others:
            _share(first, block)
        self.register_state_dict_post_hook(_without_copies)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_pre_hook(_with_copies)  # type: ignore[no-untyped-call]
        self.depth: Tensor
        table = tabulated(position_tables.sinusoids, n_layers, config.d_model + config.d_model % 2)
        self.register_buffer("depth", table, persistent=False)
        self.halt = nn.Linear(config.d_model, 1) if config.act_halting else None
        if config.act_halting:
            self.ponder = nn.Identity()  # a tap: (B, T), steps that each token took, and the weight of its last one

    def forward(
        self,
        x: Tensor,
        keep: Tensor | None,
        memory: Tensor | None = None,
        memory_keep: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """(B, T, D) embeddings -> (B, T, D) hidden states."""
        start = cache.start if cache else 0
        x = self.enter(x, start)
        halting = None if self.halt is None else ACTHalting(self.halt, x)
        for step, block in enumerate(self.blocks):
            placed = self.position.embed(x, start) if step else x
            placed = placed + self.depth[step, : x.size(-1)].to(x.dtype)
            new = block(
                placed, keep, self.position.layer(step), memory, memory_keep, cache.layers[step] if cache else None
            )
            x = new if halting is None else halting.step(x, new, last=step + 1 == len(self.blocks))
            if halting is not None and cache is None and not halting.running.any():
                break  # with a cache, tokens to come may think longer, and will ask for keys of every step
        if halting is not None:
            x = halting.mean
            self.ponder(halting.steps + halting.remainder)
        return x if self.norm is None else self.norm(x)


class ACTHalting:
    """How each token's states of all steps are weighted: by its halting probability, the last one by what is left."""

    def __init__(self, halt: nn.Linear, x: Tensor) -> None:
        self.halt = halt
        self.running = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)  # (B, T)
        self.left = torch.ones(x.shape[:2], device=x.device, dtype=x.dtype)  # of the weight of each token
        self.remainder = self.steps = torch.zeros_like(self.left)
        self.mean = torch.zeros_like(x)  # (B, T, D)

    def step(self, old: Tensor, new: Tensor, last: bool) -> Tensor:
        """(B, T, D) twice -> (B, T, D): tokens that are done stay as they were."""
        state = torch.where(self.running.unsqueeze(2), new, old)
        probability = self.halt(state).squeeze(2).sigmoid().to(self.left.dtype)  # (B, T)
        done = self.running & ((probability >= self.left - (1 - ENOUGH)) | last)
        weight = torch.where(done, self.left, probability) * self.running
        self.mean = self.mean + weight.unsqueeze(2) * state
        self.remainder = self.remainder + self.left * done
        self.left = self.left - weight
        self.steps = self.steps + self.running
        self.running = self.running & ~done
        return state


def _share(first: Block, other: Block) -> None:
    """Let another block have the weights of the first."""
    for name, module in other.named_modules():
        twin = first.get_submodule(name)
        for key in module._parameters:
            module.register_parameter(key, twin._parameters[key])


def _without_copies(stack: nn.Module, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    for name in _copies(stack, state, prefix):
        del state[name]


def _with_copies(stack: nn.Module, state: dict[str, Any], prefix: str, *others: Any) -> None:
    assert isinstance(stack, UniversalStack)
    for name in [name for name in state if name.startswith(f"{prefix}0.")]:
        for step in range(1, len(stack.blocks)):
            state[f"{prefix}{step}.{name.removeprefix(f'{prefix}0.')}"] = state[name]


def _copies(stack: nn.Module, state: dict[str, Any], prefix: str) -> list[str]:
    assert isinstance(stack, UniversalStack)
    beginnings = tuple(f"{prefix}{step}." for step in range(1, len(stack.blocks)))
    return [name for name in state if beginnings and name.startswith(beginnings)]
