"""Samples -> log-mel frames, the features of Whisper (Radford et al., 2022): 25 ms windows, one every 10 ms.

Power spectra are summed in triangular bands of equal width on Slaney's mel scale, in logarithms of base 10; values
more than 8 below the loudest one are raised to it, and (x + 4) / 4 brings the result near [-1, 1].
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE = 16_000
N_FFT, HOP = 400, 160  # samples of a window, and between two windows
FRAMES_PER_SECOND = SAMPLE_RATE // HOP
FLOOR = 1e-10  # of the power in a band
RANGE = 8.0  # powers of ten below the loudest value that are kept
FRAMES_AT_ONCE = 4096  # spectra that are computed at once, which bounds the memory
LINEAR_HZ, LINEAR_MEL = 1000.0, 15.0  # Slaney's scale is linear up to here and logarithmic above
LOG_STEP = np.log(6.4) / 27.0

Samples = NDArray[np.float32]
Frames = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class FeatureFrames:
    """(T, F) frames of one recording, padded with zeros to `positions` positions of the encoder; what a search reads.

    Its length is the number of positions.
    """

    frames: Frames
    positions: int

    @classmethod
    def of(cls, frames: Frames, stride: int) -> FeatureFrames:
        """Frames for an encoder that reads `stride` of them as one position."""
        positions = -(-len(frames) // stride)
        padding = positions * stride - len(frames)
        return cls(np.pad(frames, ((0, padding), (0, 0))) if padding else frames, positions)

    def __len__(self) -> int:
        return self.positions


def log_mel(samples: Samples, bins: int = 80) -> Frames:
    """(N,) samples at 16 kHz -> (N // 160, bins) frames; a recording is continued by its mirror image at both ends."""
    count = len(samples) // HOP
    if count == 0:
        return np.zeros((0, bins), np.float32)
    padded = np.pad(samples.astype(np.float32, copy=False), N_FFT // 2, mode="reflect" if len(samples) > 1 else "edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, N_FFT)[::HOP][:count]  # (T, 400), a view
    filters, hann = mel_filters(bins), _hann()
    mel = np.empty((count, bins), np.float32)
    for start in range(0, count, FRAMES_AT_ONCE):
        spectrum = np.fft.rfft(windows[start : start + FRAMES_AT_ONCE] * hann)
        mel[start : start + FRAMES_AT_ONCE] = np.log10(np.maximum(np.square(np.abs(spectrum)) @ filters, FLOOR))
    frames: Frames = (np.maximum(mel, mel.max() - np.float32(RANGE)) + np.float32(4.0)) / np.float32(4.0)
    return frames


@cache
def mel_filters(bins: int) -> NDArray[np.float64]:
    """-> (201, bins): triangles between neighbors on the mel scale, each with an area of 2 Hz (Slaney, 1998)."""
    edges = mel_to_hz(np.linspace(0.0, hz_to_mel(np.array(SAMPLE_RATE / 2)), bins + 2))
    hz = np.linspace(0.0, SAMPLE_RATE / 2, N_FFT // 2 + 1)[:, None]
    rising = (hz - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - hz) / (edges[2:] - edges[1:-1])
    triangles: NDArray[np.float64] = np.maximum(0.0, np.minimum(rising, falling)) * (2.0 / (edges[2:] - edges[:-2]))
    return triangles


def hz_to_mel(hz: NDArray[np.float64]) -> NDArray[np.float64]:
    logarithmic = LINEAR_MEL + np.log(np.maximum(hz, LINEAR_HZ) / LINEAR_HZ) / LOG_STEP
    return np.where(hz < LINEAR_HZ, hz * LINEAR_MEL / LINEAR_HZ, logarithmic)


def mel_to_hz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(mel < LINEAR_MEL, mel * LINEAR_HZ / LINEAR_MEL, LINEAR_HZ * np.exp(LOG_STEP * (mel - LINEAR_MEL)))


@cache
def _hann() -> NDArray[np.float64]:
    """A periodic Hann window."""
    hann: NDArray[np.float64] = np.hanning(N_FFT + 1)[:-1]
    return hann
