"""Weights as PyTorch tensors: named tensors -> a model, and a model -> a safetensors file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor
from torch.overrides import TorchFunctionMode

from heedful.config import ModelConfig
from heedful.errors import FolderError
from heedful.model.transformer import DecoderModel, EncoderDecoder, EncoderModel, build_model
from heedful.ops.quantization import dequantize
from heedful.storage.atomic import explain_os_errors, sync
from heedful.storage.weight_file import WeightFile, not_finite_error

FLOATS = {torch.float64, torch.float32, torch.float16, torch.bfloat16}

AnyModel = EncoderDecoder | DecoderModel | EncoderModel


def read_model(stored: WeightFile) -> AnyModel:
    """Read a model from disk as modules, in float32, also under inference mode."""
    arrays = (
        (name, values if scale is None else dequantize(values, scale)) for name, values, scale in stored.tensors()
    )
    with torch.inference_mode(False):
        return fill_model(stored.config, ((name, torch.from_numpy(values)) for name, values in arrays), stored.path)


def fill_model(model_config: ModelConfig, tensors: Iterable[tuple[str, Tensor]], where: Path) -> AnyModel:
    """Build a model and copy these tensors into it by name; they are consumed one by one."""
    with _SkipInitialization():
        model = build_model(model_config)
    missing = model.state_dict()
    for name, tensor in tensors:
        if not all_finite(tensor):
            raise not_finite_error(name, where)
        missing.pop(name).copy_(tensor)
    if missing:
        raise FolderError(f"{where} lacks {next(iter(missing))}, which the configuration calls for.")
    return model.eval()


class _SkipInitialization(TorchFunctionMode):
    """Skip the random initialization of weights that are replaced at once; in a large model it takes a second."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (Tensor.uniform_, Tensor.normal_) or getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


def all_finite(tensor: Tensor) -> bool:
    """Whether all values are finite in float32; checking minimum and maximum needs no copy."""
    return tensor.dtype in FLOATS and all(bool(bound.float().isfinite()) for bound in tensor.aminmax())


def save_weights(
    weights: Mapping[str, Tensor],
    path: Path,
    metadata: dict[str, str] | None = None,
    before_replacing: Callable[[Path], None] = lambda temporary: None,
) -> None:
    """Replace a safetensors file atomically; `before_replacing` gets the complete new file before it has its name."""
    temporary = path.parent / f".{path.name}.{os.getpid()}.tmp"
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    with explain_os_errors(path):
        try:
            save_file(plain, temporary, metadata or {"format": "pt"})
            temporary.chmod(0o644)  # like every other file of a model folder
            sync(temporary)
            before_replacing(temporary)
            temporary.replace(path)
            sync(path.parent)
        except SafetensorError as error:
            number = re.search(r"os error (\d+)", str(error))  # safetensors keeps the system's error as text
            code = int(number[1]) if number else None
            raise (OSError(code, os.strerror(code)) if code else OSError(str(error))) from error
        finally:
            temporary.unlink(missing_ok=True)
