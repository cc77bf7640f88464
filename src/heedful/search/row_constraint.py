"""Constraints that both searches apply: on rows of NumPy arrays for the native engine, on tensors for PyTorch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

if TYPE_CHECKING:
    from torch import Tensor


class RowConstraint(ABC):
    """A `Constraint` that looks at one row at a time. Its result is the same if a constant is added to the row."""

    @abstractmethod
    def forbid(self, log_probs: npt.NDArray[Any], ids: Sequence[int]) -> None:
        """Set log-probabilities (V,), or logits, of the token after `ids` to minus infinity, in place."""

    def __call__(self, log_probs: Tensor, prefix: Tensor, sentence: Tensor) -> Tensor:
        """(R, V), (R, t), (R,) -> (R, V)."""
        import torch

        rows = log_probs.cpu().numpy()
        for row, ids in zip(rows, prefix.tolist(), strict=True):
            self.forbid(row, ids)
        return torch.from_numpy(rows).to(log_probs.device)
