"""Newton-Schulz orthogonalization by the compiled engine, for Muon; `ops.newton_schulz` is the same in torch."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import byref, c_void_p
from functools import partial

import torch
from torch import Tensor

from heedful.errors import HeedfulError
from heedful.native.capi import QuinticStruct
from heedful.native.engine import library, training_precision
from heedful.ops.newton_schulz import QUINTIC, ROUNDS, newton_schulz


def newton_schulz_for(matrix: Tensor, precision: str = "float32") -> Callable[[Tensor], Tensor]:
    """A function (N, A, B) -> (N, A, B) for matrices like this one: the engine's if it applies, else torch's."""
    supported = matrix.device.type == "cpu" and matrix.dtype == torch.float32
    loaded = library() if supported else None
    if loaded is None:
        return newton_schulz
    return partial(newton_schulz_native, loaded=loaded, precision=training_precision(precision, loaded))


def newton_schulz_native(matrices: Tensor, loaded: ctypes.CDLL, precision: str = "float32") -> Tensor:
    """(N, A, B) -> (N, A, B)."""
    result = matrices.clone(memory_format=torch.contiguous_format)
    quintic = QuinticStruct(*QUINTIC, ROUNDS)
    address, bf16 = c_void_p(result.data_ptr()), precision == "bfloat16"
    if loaded.heedful_newton_schulz(address, *result.shape, byref(quintic), torch.get_num_threads(), bf16) < 0:
        raise HeedfulError(f"the engine cannot compute a Muon step: {loaded.heedful_error().decode()}.")
    return result
