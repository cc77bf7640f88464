"""Which numbers the products are computed in, found out from the machine and said in the log."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from heedful.ops.cpu import amx_is_described

if TYPE_CHECKING:
    import torch

PRECISIONS = ("auto", "float32", "bfloat16", "int8")  # int8 is for translating, by the compiled engine
PRECISION_NAMES = "auto, float32, bfloat16 or int8"


def choose_precision(precision: str, device: str) -> str:
    """'auto' -> bfloat16 where torch is faster in it, float32 elsewhere.

    CPUs with tiles multiply bfloat16 in them; without, they take twice as long as for float32.
    """
    if precision != "auto":
        return precision
    import torch

    if torch.device(device).type == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    has_it = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return "bfloat16" if has_it and amx_is_described() else "float32"


def autocast(precision: str, device: torch.device) -> AbstractContextManager[Any]:
    """A context in which matrix products take `precision`; weights and sums stay in float32."""
    import torch

    if precision != "bfloat16":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)
