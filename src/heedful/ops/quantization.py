"""Symmetric int8 quantization with one scale per row; values are at most 127.

The native engine quantizes the same way. A scale has 16 significant bits, so that 127 times the scale is exact and
quantizing a dequantized matrix gives the same int8 values and scales again.
"""

import numpy as np
import numpy.typing as npt

INT8_LIMIT = 127  # largest absolute int8 value
MIN_ABS_MAX = np.float32(1e-30)  # a row whose values are all smaller is quantized to zeros: 1 / scale would overflow
SCALE_BITS = np.uint32(0xFFFFFF00)  # the bits of a float32 that a scale uses
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
        bound[bound <= MIN_ABS_MAX] = 0
        scale[chunk] = ((bound / np.float32(INT8_LIMIT)).view(np.uint32) & SCALE_BITS).view(np.float32)
        factor = np.divide(1, scale[chunk], out=np.zeros_like(bound), where=bound > 0)
        values[chunk] = np.rint(rows * factor[:, None]).reshape(weight[chunk].shape)
    return values, scale


def dequantize(values: Int8Array, scale: FloatArray) -> FloatArray:
    """(N, …) int8 values and (N,) scales -> (N, …) float32."""
    weight = values.astype(np.float32)
    weight *= scale.reshape(-1, *[1] * (values.ndim - 1))
    return weight
