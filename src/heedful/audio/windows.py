"""A recording -> windows that a model can read at once, cut at the quietest place of the second half of each.

Works on blocks as they are decoded: memory is bounded by one window, and every sample is in exactly one window.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from heedful.audio.log_mel import HOP, SAMPLE_RATE, Samples

PAUSE_SECONDS = 0.2  # length of the stretch whose energy is compared
SILENCE = 1e-3  # peak of the samples (-60 dB) below which a window has no speech


@dataclass(frozen=True, eq=False)
class AudioWindow:
    """A part of a recording; `start` and `end` count seconds from its beginning."""

    samples: Samples
    start: float

    @property
    def end(self) -> float:
        return self.start + len(self.samples) / SAMPLE_RATE

    @property
    def silent(self) -> bool:
        return not len(self.samples) or float(np.abs(self.samples).max()) < SILENCE


def cut_windows(blocks: Iterable[Samples], seconds: float) -> Iterator[AudioWindow]:
    """The blocks of a recording as windows of at most `seconds`, one at least."""
    longest = max(HOP, int(seconds * SAMPLE_RATE))
    waiting, start = np.zeros(0, np.float32), 0
    for block in blocks:
        waiting = np.concatenate((waiting, block))
        while len(waiting) > longest:
            cut = quietest_place(waiting[:longest])
            yield AudioWindow(waiting[:cut], start / SAMPLE_RATE)
            waiting, start = waiting[cut:], start + cut
    if len(waiting) or start == 0:
        yield AudioWindow(waiting, start / SAMPLE_RATE)


def quietest_place(samples: Samples) -> int:
    """The middle of the stretch with the least energy in the second half; the last of equal ones."""
    hops = len(samples) // HOP
    energy = np.square(samples[: hops * HOP].astype(np.float64)).reshape(hops, HOP).sum(1)
    width = max(1, min(int(PAUSE_SECONDS * SAMPLE_RATE / HOP), hops // 4))
    total = np.concatenate(([0.0], np.cumsum(energy)))
    stretches = (total[width:] - total[:-width])[hops // 2 :]  # by first hop, from the middle of the window on
    if not len(stretches):
        return len(samples)
    last = len(stretches) - 1 - int(np.argmin(np.round(stretches[::-1], 9)))
    return min(len(samples), (hops // 2 + last + width // 2) * HOP) or len(samples)
