"""Symmetric int8 quantization with one scale per row; values are at most 64.

64 instead of 127, so that int16 sums of products do not overflow on any CPU (the native engine quantizes the same way).
The largest value of a row is exactly 64, so quantizing a dequantized matrix gives the same int8 values again.
"""

import numpy as np
import numpy.typing as npt

INT8_LIMIT = 64  # largest absolute int8 value
CHUNK_ROWS = 1024  # rows quantized at a time, to limit memory

FloatArray = npt.NDArray[np.float32]
Int8Array = npt.NDArray[np.int8]


def quantize(weight: FloatArray) -> tuple[Int8Array, FloatArray]:
    """(N, …) -> (N, …) int8 values and (N,) float32 scales."""
    values, scale = np.empty(weight.shape, np.int8), np.empty(len(weight), np.float32)
    for start in range(0, len(weight), CHUNK_ROWS):
        chunk = slice(start, start + CHUNK_ROWS)
        rows = weight[chunk].reshape(len(weight[chunk]), -1)
        bound = np.abs(rows).max(1)
        with np.errstate(divide="ignore", over="ignore"):
            factor = np.float32(INT8_LIMIT) / bound
        factor[np.isinf(factor)] = 0  # rows that are zero, or too small to divide by
        values[chunk] = np.rint(rows * factor[:, None]).reshape(weight[chunk].shape)
        scale[chunk] = bound / np.float32(INT8_LIMIT)
    return values, scale


def dequantize(values: Int8Array, scale: FloatArray) -> FloatArray:
    """(N, …) int8 values and (N,) scales -> (N, …) float32."""
    weight = values.astype(np.float32)
    weight *= scale.reshape(-1, *[1] * (values.ndim - 1))
    return weight
