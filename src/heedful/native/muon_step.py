"""Orthogonal matrices by the compiled engine, for the steps of Muon, with fewer multiplications than torch needs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import byref, c_void_p
from functools import partial

import torch
from torch import Tensor

from heedful.errors import HeedfulError
from heedful.native.capi import Quintic
from heedful.native.engine import library, training_precision
from heedful.ops.newton_schulz import QUINTIC, ROUNDS
from heedful.ops.newton_schulz import newton_schulz as plain


def newton_schulz_for(matrix: Tensor, precision: str = "float32") -> Callable[[Tensor], Tensor]:
    """(N, A, B) -> (N, A, B) for matrices like this one; torch's if there is no engine for them."""
    by_engine = matrix.device.type == "cpu" and matrix.dtype == torch.float32
    loaded = library() if by_engine else None
    return plain if loaded is None else partial(made, loaded=loaded, precision=training_precision(precision, loaded))


def made(matrices: Tensor, loaded: ctypes.CDLL, precision: str = "float32") -> Tensor:
    """Made by the engine."""
    found = matrices.clone(memory_format=torch.contiguous_format)
    quintic = Quintic(*QUINTIC, ROUNDS)
    where = c_void_p(found.data_ptr())
    halves = precision == "bfloat16"
    if loaded.heedful_orthogonal(where, *found.shape, byref(quintic), torch.get_num_threads(), halves) < 0:
        raise HeedfulError(f"the engine cannot compute a step: {loaded.heedful_error().decode()}.")
    return found
