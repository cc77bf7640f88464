"""Position tables that depend on sizes only: sinusoids, rotary angles, ALiBi slopes. Computed without torch."""

import math

import numpy as np
import numpy.typing as npt

Table = npt.NDArray[np.float32]


def sinusoids(length: int, width: int) -> Table:
    """-> (length, width): PE(pos, 2i) = sin(pos / 10000^(2i/width)), PE(pos, 2i+1) = cos of the same."""
    angle = _angles(length, width)
    return np.stack((np.sin(angle), np.cos(angle)), -1).reshape(length, -1).astype(np.float32)


def rotary_table(length: int, width: int) -> Table:
    """-> (length, width / 2, 2): cosine and sine of the angles of rotary positions."""
    angle = _angles(length, width)
    return np.stack((np.cos(angle), np.sin(angle)), -1).astype(np.float32)


def _angles(length: int, width: int) -> npt.NDArray[np.float64]:
    """-> (length, width / 2)."""
    frequency = np.exp(np.arange(0, width, 2) * (-math.log(10_000.0) / width))
    return np.outer(np.arange(length), frequency)


def alibi_slopes(n_heads: int) -> Table:
    """-> (H): 2^(-8/H), 2^(-16/H), …; if H is no power of two, every other slope of the next power fills up."""
    power = 2 ** math.floor(math.log2(n_heads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    extra = [2 ** (-8 * (i + 1) / (2 * power)) for i in range(0, 2 * (n_heads - power), 2)]
    return np.array(slopes + extra, dtype=np.float32)
