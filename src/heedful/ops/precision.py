"""The precision of matrix products, chosen for the machine and reported in the log."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from heedful.ops.cpu import amx_is_described

if TYPE_CHECKING:
    import torch

PRECISIONS = ("auto", "float32", "bfloat16", "int8")  # int8: inference by the native engine only
PRECISION_NAMES = "auto, float32, bfloat16 or int8"


def choose_precision(precision: str, device: str) -> str:
    """'auto' -> bfloat16 where torch is faster with it, float32 elsewhere.

    On a CPU without bf16 instructions (AVX-512 BF16 or AMX), bf16 products take twice as long as float32 ones.
    """
    if precision != "auto":
        return precision
    import torch

    if torch.device(device).type == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    has_bf16 = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return "bfloat16" if has_bf16 and amx_is_described() else "float32"


def autocast(precision: str, device: torch.device) -> AbstractContextManager[Any]:
    """A context manager for matrix products in `precision`; weights and sums stay in float32."""
    import torch

    if precision != "bfloat16":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)
