"""Whether the native engine or PyTorch computes a model, and in which precision. Imports no torch on a CPU."""

from __future__ import annotations

from collections.abc import Sequence

from heedful.config import ModelConfig
from heedful.errors import SettingError
from heedful.native import library
from heedful.native.support import unsupported_setting
from heedful.ops.precision import PRECISION_NAMES, PRECISIONS, choose_precision
from heedful.storage.folder import ModelFolder
from heedful.storage.weight_file import WeightFile


def why_not_native(configs: Sequence[ModelConfig], device: str) -> str:
    """Why the engine does not compute these models, as the end of a sentence about it; empty if it does."""
    if device != "cpu":
        return "needs a CPU"
    for config in configs:
        if setting := unsupported_setting(config):
            return f"does not know {setting}"
    return "" if library() is not None else "is not available"


def computed_natively(folder: ModelFolder, precision: str, device: str) -> bool:
    """Whether the engine computes a GPT or a BERT: weights on disk, on a CPU, in float32 or int8.

    A model that was read as a PyTorch module is computed by PyTorch, with its hooks and changed weights.
    """
    on_disk = isinstance(folder.weights, WeightFile)
    return on_disk and precision != "bfloat16" and not why_not_native([folder.config], device)


def model_precision(folder: ModelFolder, precision: str, device: str) -> str:
    """The precision of a GPT or a BERT; `auto` is float32 where the engine computes."""
    writes = f"`heedful convert {folder.path} NEW` writes one"
    why = "" if isinstance(folder.weights, WeightFile) else f"reads heedful's own model folders only ({writes})"
    return resolve_precision(precision, device, why or why_not_native([folder.config], device), "float32")


def resolve_precision(precision: str, device: str, why_not: str, native: str) -> str:
    """The precision to compute in: `auto` is `native` where the engine computes, else the fastest one of PyTorch.

    An unknown one is refused, and int8 where PyTorch computes, `why_not` saying why.
    """
    if precision not in PRECISIONS:
        raise SettingError(f"precision is {precision!r}; it must be {PRECISION_NAMES}.")
    if precision == "int8" and why_not:
        raise SettingError(
            f"precision is int8, but the native engine, which computes it, {why_not}; leave it out, or set it to "
            "float32."
        )
    return native if precision == "auto" and not why_not else choose_precision(precision, device)
