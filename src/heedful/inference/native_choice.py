"""Whether the native engine or PyTorch computes a GPT or a BERT. Imports no torch."""

from __future__ import annotations

from heedful.errors import SettingError
from heedful.native import library, supports
from heedful.native.support import unsupported_setting
from heedful.storage.folder import ModelFolder
from heedful.storage.weight_file import WeightFile

PRECISIONS = ("float32", "bfloat16", "int8")


def computed_natively(folder: ModelFolder, precision: str, device: str) -> bool:
    """Whether the engine computes a model: weights on disk, on a CPU, in float32 or int8.

    A model that was read as a PyTorch module is computed by PyTorch, with its hooks and changed weights.
    """
    on_disk = isinstance(folder.weights, WeightFile)
    return on_disk and device == "cpu" and precision != "bfloat16" and supports(folder.config) and library() is not None


def check_precision(folder: ModelFolder, precision: str, device: str) -> str:
    """Refuse an unknown precision, and int8 where PyTorch computes."""
    if precision not in PRECISIONS:
        raise SettingError(f"precision is {precision!r}; it must be {', '.join(PRECISIONS[:-1])} or {PRECISIONS[-1]}.")
    if precision == "int8" and not computed_natively(folder, precision, device):
        setting = unsupported_setting(folder.config)
        why = f"does not know {setting}" if setting else "is not available or needs weights on disk and a CPU"
        raise SettingError(
            f"precision is int8, but the native engine, which computes it, {why}; leave it out, or set it to float32."
        )
    return precision
