"""Weights as torch has them: named tensors -> a model, and onto the disk."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
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
    """A model on disk as modules, in float32, whatever mode torch is in."""
    given = ((name, each if scale is None else dequantize(each, scale)) for name, each, scale in stored.tensors())
    with torch.inference_mode(False):
        return fill_model(stored.config, ((name, torch.from_numpy(each)) for name, each in given), stored.path)


def fill_model(model_config: ModelConfig, tensors: Iterable[tuple[str, Tensor]], where: Path) -> AnyModel:
    """A model of these weights, by name, ready for use; each is asked for when it is wanted, and copied."""
    with _SkipInitialization():
        model = build_model(model_config)
    places = model.state_dict()
    for name, tensor in tensors:
        if not all_finite(tensor):
            raise not_finite_error(name, where)
        places.pop(name).copy_(tensor)
    if places:
        raise FolderError(f"{where} lacks {next(iter(places))}, which the configuration calls for.")
    return model.eval()


class _SkipInitialization(TorchFunctionMode):
    """No random numbers are drawn for weights that are replaced at once: for a large model they take a second."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (Tensor.uniform_, Tensor.normal_) or getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


def all_finite(tensor: Tensor) -> bool:
    """Whether all are finite numbers in float32; the smallest and the largest show what is not, without a copy."""
    return tensor.dtype in FLOATS and all(bool(bound.float().isfinite()) for bound in tensor.aminmax())


def save_weights(weights: Mapping[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Replace one safetensors file as a whole."""
    temporary = path.parent / f".{path.name}.{os.getpid()}.tmp"
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    with explain_os_errors(path):
        try:
            save_file(plain, temporary, metadata or {"format": "pt"})
            temporary.chmod(0o644)  # like every other file of a model folder
            sync(temporary)
            temporary.replace(path)
            sync(path.parent)
        except SafetensorError as error:
            raise OSError(str(error)) from error
        finally:
            temporary.unlink(missing_ok=True)
