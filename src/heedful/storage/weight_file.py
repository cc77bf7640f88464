"""Weights in a safetensors file, checked against what there should be, and read one tensor at a time.

They are float32, or int8: then every matrix but tables of positions is whole numbers with scales beside them. Nothing
here needs torch.
"""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from heedful.config import ModelConfig
from heedful.errors import FolderError
from heedful.ops.quantization import INT8_LIMIT, quantize

TYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": np.uint16, "I8": np.int8}
FLOATS = TYPES.keys() - {"I8"}  # as safetensors calls them
SCALE = "_scale"  # behind the name of a matrix in int8: the name of its scales

Array = npt.NDArray[Any]
Shapes = Mapping[str, tuple[int, ...]]


class WeightFile:
    """Weights in a file, checked but not kept in memory.

    The file stays open, so they are the same whenever they are read, even if another one has taken its place.
    """

    def __init__(self, config: ModelConfig, shapes: Shapes, path: Path, precision: str) -> None:
        self.config, self.shapes, self.path = config, shapes, path
        _check_header(path, _expected_tensors(shapes, precision))
        self.file = path.open("rb")
        weakref.finalize(self, self.file.close)
        self.written = os.fstat(self.file.fileno()).st_mtime_ns
        size = int.from_bytes(self.file.read(8), "little")
        self.head, self.first = json.loads(self.file.read(size)), 8 + size
        for _ in self.tensors():  # which checks them
            pass

    def tensors(self) -> Iterator[tuple[str, Array, Array | None]]:
        """All tensors by name, one after the other; those of 8 bits with their scales."""
        for name in self.shapes:
            tensor, scale = self._tensor(name), None
            if tensor.dtype == np.int8:
                if max(-int(tensor.min(initial=0)), int(tensor.max(initial=0))) > INT8_LIMIT:
                    raise FolderError(
                        f"{self.path}: {name} holds whole numbers beyond {INT8_LIMIT}; the model cannot be used."
                    )
                scale = self._tensor(name + SCALE)
            with np.errstate(over="ignore"):  # which is then said
                self._check_finite(name, tensor if scale is None else scale * np.float32(INT8_LIMIT))
            yield name, tensor, scale

    def _check_finite(self, name: str, tensor: Array) -> None:
        """The smallest and the largest number show what is not finite in float32, without a copy."""
        if tensor.size and not np.isfinite(np.array([tensor.min(), tensor.max()]).astype(np.float32)).all():
            raise not_finite_error(name, self.path)

    def _tensor(self, name: str) -> Array:
        """Read and not mapped, so that of the file nothing stays in memory."""
        about = self.head[name]
        tensor = np.empty(about["shape"], TYPES[about["dtype"]])
        self.file.seek(self.first + about["data_offsets"][0])
        read = self.file.readinto(tensor.reshape(-1).view(np.uint8).data)
        if read != tensor.nbytes or os.fstat(self.file.fileno()).st_mtime_ns != self.written:
            raise FolderError(f"{self.path} was changed while it was in use; load the model again.")
        return _bfloat16_to_float32(tensor) if about["dtype"] == "BF16" else tensor


def quantized_tensors(weights: Mapping[str, Array]) -> dict[str, Array]:
    """Weights as a file of 8 bits has them."""
    stored = dict(weights)
    for name, tensor in weights.items():
        if _is_matrix(name, tensor.shape):
            stored[name], stored[name + SCALE] = quantize(tensor.astype(np.float32, copy=False))
    return stored


def not_finite_error(name: str, where: Path) -> FolderError:
    return FolderError(f"{where}: {name} holds numbers that are not finite in float32; the model cannot be used.")


def _bfloat16_to_float32(halves: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """Numbers of bfloat16 are the first half of a float32."""
    return (halves.astype(np.uint32) << 16).view(np.float32)


def _is_matrix(name: str, shape: Sequence[int]) -> bool:
    """Whether it is kept in 8 bits if the folder is: all that is multiplied or looked up, but no table of positions."""
    return len(shape) > 1 and "position" not in name.split(".")


def _expected_tensors(shapes: Shapes, precision: str) -> dict[str, tuple[tuple[int, ...], set[str]]]:
    """Every tensor of a file of weights: its shape, and the types that it may have."""
    expected = {name: (shape, FLOATS) for name, shape in shapes.items()}
    if precision == "int8":
        for name, shape in shapes.items():
            if _is_matrix(name, shape):
                expected |= {name: (shape, {"I8"}), name + SCALE: (shape[:1], {"F32"})}
    return expected


def _check_header(weights: Path, expected: dict[str, tuple[tuple[int, ...], set[str]]]) -> None:
    """Compare the head of a file with what there should be."""
    try:
        with safe_open(weights, framework="np") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            found = {name: (tuple(each.get_shape()), each.get_dtype()) for name, each in slices.items()}
    except FileNotFoundError:
        raise FolderError(f"{weights} does not exist; the folder is incomplete, copy it again.") from None
    except (SafetensorError, OSError) as error:
        raise FolderError(f"{weights} is damaged ({error}); copy it again.") from None
    for name, (shape, types) in expected.items():
        if name not in found:
            raise FolderError(f"{weights} lacks {name}, which the configuration calls for.")
        if found[name][0] != shape:
            raise FolderError(f"{weights}: {name} has shape {found[name][0]}, and the configuration says {shape}.")
        if found[name][1] not in types:
            wanted = " or ".join(sorted(types))
            raise FolderError(f"{weights}: {name} is of type {found[name][1]}, and the configuration says {wanted}.")
    surplus = sorted(found.keys() - expected.keys())
    if surplus:
        raise FolderError(f"{weights} holds {surplus[0]}, for which the configuration has no place.")
