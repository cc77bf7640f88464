"""The Universal Transformer (Dehghani et al., 2019): one block applied N times, so depth is recurrence.

With halting, the number of steps is learned per token (adaptive computation time, ACT; Graves, 2016).
"""

from typing import Any

import torch
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.model.block import Block, Stack
from heedful.model.context import Context
from heedful.model.positions import table_buffer
from heedful.ops import position_tables

HALTING_THRESHOLD = 0.99  # a token halts when the sum of its halting probabilities exceeds this, 1 - ε in the paper


class UniversalStack(Stack):
    """A stack whose blocks share all weights; position and step embeddings are added before each step.

    Step n is the submodule `n`, so its taps have names of their own; only the weights of step 0 are saved.
    """

    def __init__(self, config: ModelConfig, n_layers: int, cross: bool = False, causal: bool = False) -> None:
        super().__init__(config, n_layers, cross, causal)
        first, *others = self.blocks
        for block in others:
            _share_parameters(first, block)
        self.register_state_dict_post_hook(_drop_copies)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_pre_hook(_add_copies)  # type: ignore[no-untyped-call]
        self.depth: Tensor
        table = table_buffer(position_tables.sinusoids, n_layers, config.d_model + config.d_model % 2)
        self.register_buffer("depth", table, persistent=False)
        self.halt = nn.Linear(config.d_model, 1) if config.act_halting else None
        if config.act_halting:
            self.ponder = nn.Identity()  # a tap: (B, T), the ponder time, steps of a token plus its remainder

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """(B, T, D) embeddings -> (B, T, D) hidden states."""
        start = context.start
        x = self.add_positions(x, start)
        halting = None if self.halt is None else ACTHalting(self.halt, x)
        for step, block in enumerate(self.blocks):
            placed = self.position.embed(x, start) if step else x
            placed = placed + self.depth[step, : x.size(-1)].to(x.dtype)
            new = block(placed, context.layer(step, self.position))
            x = new if halting is None else halting.step(x, new, last=step + 1 == len(self.blocks))
            if halting is not None and context.cache is None and not halting.running.any():
                break  # not with a cache: later tokens may take more steps, and attend to the keys of every step
        if halting is not None:
            x = halting.mean
            self.ponder(halting.steps + halting.remainder)
        return x if self.norm is None else self.norm(x, context.real)


class ACTHalting:
    """ACT: a token's output is the sum of its states, weighted by halting probability, the last by the remainder."""

    def __init__(self, halt: nn.Linear, x: Tensor) -> None:
        self.halt = halt
        self.running = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)  # (B, T)
        self.left = torch.ones(x.shape[:2], device=x.device, dtype=x.dtype)  # 1 - the sum of halting probabilities
        self.remainder = self.steps = torch.zeros_like(self.left)
        self.mean = torch.zeros_like(x)  # (B, T, D)

    def step(self, old: Tensor, new: Tensor, last: bool) -> Tensor:
        """(B, T, D) twice -> (B, T, D): the states of halted tokens do not change."""
        state = torch.where(self.running.unsqueeze(2), new, old)
        probability = self.halt(state).squeeze(2).sigmoid().to(self.left.dtype)  # (B, T)
        done = self.running & ((probability >= self.left - (1 - HALTING_THRESHOLD)) | last)
        weight = torch.where(done, self.left, probability) * self.running
        self.mean = self.mean + weight.unsqueeze(2) * state
        self.remainder = self.remainder + self.left * done
        self.left = self.left - weight
        self.steps = self.steps + self.running
        self.running = self.running & ~done
        return state


def _share_parameters(first: Block, other: Block) -> None:
    """Share the parameters of the first block with another."""
    for name, module in other.named_modules():
        source = first.get_submodule(name)
        for key in module._parameters:
            module.register_parameter(key, source._parameters[key])


def _drop_copies(stack: nn.Module, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    for name in _copies(stack, state, prefix):
        del state[name]


def _add_copies(stack: nn.Module, state: dict[str, Any], prefix: str, *others: Any) -> None:
    assert isinstance(stack, UniversalStack)
    for name in [name for name in state if name.startswith(f"{prefix}0.")]:
        for step in range(1, len(stack.blocks)):
            state[f"{prefix}{step}.{name.removeprefix(f'{prefix}0.')}"] = state[name]


def _copies(stack: nn.Module, state: dict[str, Any], prefix: str) -> list[str]:
    assert isinstance(stack, UniversalStack)
    prefixes = tuple(f"{prefix}{step}." for step in range(1, len(stack.blocks)))
    return [name for name in state if prefixes and name.startswith(prefixes)]
