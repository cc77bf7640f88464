"""A safetensors file of weights, checked against the tensor spec and read one tensor at a time.

Weights are floats, or int8: then every matrix except position tables has int8 values with a scale per row. Imports no
torch.
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
FLOATS = TYPES.keys() - {"I8"}  # names of safetensors
SCALE = "_scale"  # suffix of the scales of an int8 matrix

Array = npt.NDArray[Any]
Shapes = Mapping[str, tuple[int, ...]]


class WeightFile:
    """Weights in a file, checked but not kept in memory.

    The file stays open, so its content stays the same even if the path is replaced by another file.
    """

    def __init__(self, config: ModelConfig, shapes: Shapes, path: Path, precision: str) -> None:
        self.config, self.shapes, self.path = config, shapes, path
        _check_header(path, _expected_tensors(shapes, precision))
        self.file = path.open("rb")
        weakref.finalize(self, self.file.close)
        self.modified = os.fstat(self.file.fileno()).st_mtime_ns
        size = int.from_bytes(self.file.read(8), "little")
        self.header, self.first = json.loads(self.file.read(size)), 8 + size
        for _ in self.tensors():  # each is checked
            pass

    def tensors(self) -> Iterator[tuple[str, Array, Array | None]]:
        """Yield the name and values of every tensor, and the scales of int8 values."""
        for name in self.shapes:
            tensor, scale = self._tensor(name), None
            if tensor.dtype == np.int8:
                if max(-int(tensor.min(initial=0)), int(tensor.max(initial=0))) > INT8_LIMIT:
                    raise FolderError(
                        f"{self.path}: {name} holds int8 values beyond ±{INT8_LIMIT}; the model cannot be used."
                    )
                scale = self._tensor(name + SCALE)
            with np.errstate(over="ignore"):  # reported as not finite
                self._check_finite(name, tensor if scale is None else scale * np.float32(INT8_LIMIT))
            yield name, tensor, scale

    def _check_finite(self, name: str, tensor: Array) -> None:
        """Check minimum and maximum in float32, which needs no copy."""
        if tensor.size and not np.isfinite(np.array([tensor.min(), tensor.max()]).astype(np.float32)).all():
            raise not_finite_error(name, self.path)

    def _tensor(self, name: str) -> Array:
        """Read, not memory-mapped, so that no page of the file stays in memory."""
        header = self.header[name]
        tensor = np.empty(header["shape"], TYPES[header["dtype"]])
        self.file.seek(self.first + header["data_offsets"][0])
        read = self.file.readinto(tensor.reshape(-1).view(np.uint8).data)
        if read != tensor.nbytes or os.fstat(self.file.fileno()).st_mtime_ns != self.modified:
            raise FolderError(f"{self.path} was changed while it was in use; load the model again.")
        return _bfloat16_to_float32(tensor) if header["dtype"] == "BF16" else tensor


def quantized_tensors(weights: Mapping[str, Array]) -> dict[str, Array]:
    """Weights as stored in int8: matrices as int8 values and scales, the rest unchanged."""
    stored = dict(weights)
    for name, tensor in weights.items():
        if _is_matrix(name, tensor.shape):
            stored[name], stored[name + SCALE] = quantize(tensor.astype(np.float32, copy=False))
    return stored


def not_finite_error(name: str, where: Path) -> FolderError:
    return FolderError(f"{where}: {name} holds numbers that are not finite in float32; the model cannot be used.")


def _bfloat16_to_float32(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """A bfloat16 value is the upper half of a float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _is_matrix(name: str, shape: Sequence[int]) -> bool:
    """Whether an int8 folder stores it in int8: weight and embedding matrices, but not position tables."""
    return len(shape) > 1 and "position" not in name.split(".")


def _expected_tensors(shapes: Shapes, precision: str) -> dict[str, tuple[tuple[int, ...], set[str]]]:
    """Every tensor of the file: its shape, and the data types it may have."""
    expected = {name: (shape, FLOATS) for name, shape in shapes.items()}
    if precision == "int8":
        for name, shape in shapes.items():
            if _is_matrix(name, shape):
                expected |= {name: (shape, {"I8"}), name + SCALE: (shape[:1], {"F32"})}
    return expected


def _check_header(weights: Path, expected: dict[str, tuple[tuple[int, ...], set[str]]]) -> None:
    """Compare the header of a file with the expected tensors."""
    try:
        with safe_open(weights, framework="np") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            actual = {name: (tuple(tensor.get_shape()), tensor.get_dtype()) for name, tensor in slices.items()}
    except FileNotFoundError:
        raise FolderError(f"{weights} does not exist; the folder is incomplete, copy it again.") from None
    except (SafetensorError, OSError) as error:
        raise FolderError(f"{weights} is damaged ({error}); copy it again.") from None
    for name, (shape, types) in expected.items():
        if name not in actual:
            raise FolderError(f"{weights} lacks {name}, which the configuration calls for.")
        if actual[name][0] != shape:
            raise FolderError(f"{weights}: {name} has shape {actual[name][0]}, and the configuration says {shape}.")
        if actual[name][1] not in types:
            allowed = " or ".join(sorted(types))
            raise FolderError(f"{weights}: {name} is of type {actual[name][1]}, and the configuration says {allowed}.")
    surplus = sorted(actual.keys() - expected.keys())
    if surplus:
        raise FolderError(f"{weights} holds {surplus[0]}, which is not part of the configured model.")
