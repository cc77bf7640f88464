"""Steps of Adam by the compiled engine: all weights in one pass; `ops.adamw` is the same in torch."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_int64, c_void_p
from functools import partial

import torch
from torch import Tensor

from heedful.errors import HeedfulError
from heedful.native.capi import AdamOptionsStruct, AdamTensorsStruct
from heedful.native.engine import library
from heedful.ops.adamw import AdamStep, AdamTensors, adam_step


def adam_step_for(weights: Sequence[Tensor]) -> AdamStep:
    """The engine's step if it applies to these weights, else torch's."""
    supported = all(weight.device.type == "cpu" and weight.dtype == torch.float32 for weight in weights)
    loaded = library() if supported and all(weight.is_contiguous() for weight in weights) else None
    return adam_step if loaded is None else partial(adam_step_native, loaded=loaded)


def adam_step_native(
    tensors: AdamTensors,
    rate: float,
    betas: tuple[float, float],
    epsilon: float,
    decay: float,
    loaded: ctypes.CDLL,
) -> None:
    """As `ops.adamw.adam_step`."""
    lists = (tensors.weights, tensors.gradients, tensors.means, tensors.squares, tensors.updates)
    count = len(tensors.weights)
    if any(len(part) != count for part in lists):
        raise ValueError(
            f"{count} weights and {len(tensors.gradients)} gradients; each weight needs a gradient and state"
        )
    addresses = [(c_void_p * count)(*(tensor.data_ptr() for tensor in part)) for part in lists]
    sizes = (c_int64 * count)(*(weight.numel() for weight in tensors.weights))
    struct = AdamTensorsStruct(
        *(c_void_p(ctypes.addressof(array)) for array in addresses), ctypes.addressof(sizes), count
    )
    options = AdamOptionsStruct(rate, *betas, epsilon, decay)
    if loaded.heedful_adam_step(byref(struct), byref(options), torch.get_num_threads()) < 0:
        raise HeedfulError(f"the engine cannot compute an Adam step: {loaded.heedful_error().decode()}.")
    torch.autograd.graph.increment_version(tensors.weights)  # PyTorch does not see what the engine writes
