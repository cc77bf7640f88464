"""An int8 matrix product by NumPy, row by row in 64-bit integers."""

import numpy as np
from numpy.typing import NDArray

from heedful.native import library

# some libraries round quantized weights once more when they pack them
MAX_PACKED = library().heedful_max_packed_weight() if library() else 127  # type: ignore[union-attr]
Floats = NDArray[np.float32]


def quantize_weight(weight: Floats) -> tuple[NDArray[np.int64], Floats]:
    """(M, K) integers and the scales of the rows."""
    scale = (np.abs(weight).max(1) / np.float32(127)).view(np.uint32) & np.uint32(0xFFFFFF00)
    step = scale.view(np.float32)
    values = np.rint(weight * (1 / np.where(step > 0, step, 1))[:, None])
    if MAX_PACKED < 127:
        values, step = np.rint(values * np.float32(MAX_PACKED / 127)), step * np.float32(127 / MAX_PACKED)
    return values.astype(np.int64), step


def linear_int8(x: Floats, weight: Floats) -> tuple[Floats, int]:
    """x Wᵀ: (N, K) and (M, K) -> (N, M), and the number of rows that have an outlier.

    A row of x has 254 steps between its least and its largest value, of which one may be 0; the value farthest from 0
    is left out if the others, and 0, have a range of less than half the width.
    """
    whole_weight, column_scale = quantize_weight(weight)
    y, outliers = np.empty((len(x), len(weight)), np.float32), 0
    for row, result in zip(x, y, strict=True):
        farthest = int(np.abs(row).argmax())
        others = np.append(np.delete(row, farthest), np.float32(0))
        low, high = (choose(row[farthest], choose(others)) for choose in (min, max))
        scale = high / np.float32(253) - low / np.float32(253)
        if (max(others) - min(others)) * 2 < high - low:
            scale = max(others) / np.float32(253) - min(others) / np.float32(253)
            scale = max(scale, abs(row[farthest]) / np.float32(2**15))
            outliers += 1
        whole = np.rint(row * (1 / scale if scale else np.float32(0))).astype(np.int64)
        result[:] = (whole_weight @ whole).astype(np.float32) * (column_scale * scale)
    return y, outliers
