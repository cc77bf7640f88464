"""Unfolding: a source of |s| tokens becomes a |s| + b columns, so that a decoder without attention has room."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.config import ModelConfig


def column_table(longest: int, config: ModelConfig) -> list[int]:
    """The columns, a |s| + b, of sources of 0 to `longest` tokens.

    The one place that computes them, in double precision and without its last digits: 1.1 · 10 is 11 columns, not 12.
    """
    return [math.ceil(round(length * config.unfold_ratio, 6)) + config.unfold_extra for length in range(longest + 1)]


def count_columns(real: Tensor, config: ModelConfig) -> Tensor:
    """(B, S) -> (B,): a |s| + b, where |s| counts the tokens up to the last real one."""
    positions = torch.arange(1, real.size(1) + 1, device=real.device)
    lengths = (real * positions).amax(1).clamp(min=1)
    return torch.tensor(column_table(real.size(1), config), device=real.device)[lengths]


def unfold(x: Tensor, real: Tensor, config: ModelConfig) -> tuple[Tensor, Tensor]:
    """(B, S, D), (B, S) -> (B, U, D), (B, U): sequences padded with zeros to all their columns, and which these are."""
    longest = column_table(x.size(1), config)[-1]
    padded = F.pad(x * real.unsqueeze(2), (0, 0, 0, longest - x.size(1)))
    return padded, torch.arange(longest, device=x.device) < count_columns(real, config).unsqueeze(1)
