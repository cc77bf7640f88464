"""Matrices of 8 bits: whole numbers of at most 64, times a scale of their row.

64 and not 127, so that the products of every CPU have room for them (products.h of the engine reduces in the same way).
The largest number of a row becomes 64 exactly, so what was restored is reduced to the same whole numbers again.
"""

import numpy as np
import numpy.typing as npt

MOST = 64
ROWS = 1024  # that are reduced at once, in little memory

Floats = npt.NDArray[np.float32]
Wholes = npt.NDArray[np.int8]


def quantize(weight: Floats) -> tuple[Wholes, Floats]:
    """(N, …) -> (N, …) whole numbers in int8 and (N,) scales in float32."""
    whole, scale = np.empty(weight.shape, np.int8), np.empty(len(weight), np.float32)
    for start in range(0, len(weight), ROWS):
        some = slice(start, start + ROWS)
        rows = weight[some].reshape(len(weight[some]), -1)
        bound = np.abs(rows).max(1)
        with np.errstate(divide="ignore", over="ignore"):
            factor = np.float32(MOST) / bound
        factor[np.isinf(factor)] = 0  # rows of nothing, or of next to nothing
        whole[some] = np.rint(rows * factor[:, None]).reshape(weight[some].shape)
        scale[some] = bound / np.float32(MOST)
    return whole, scale


def dequantize(whole: Wholes, scale: Floats) -> Floats:
    """(N, …) whole numbers and (N,) scales -> (N, …) in float32."""
    restored = whole.astype(np.float32)
    restored *= scale.reshape(-1, *[1] * (whole.ndim - 1))
    return restored
