"""Windows: every sample is in exactly one, none is too long, and cuts are in pauses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.audio.windows import AudioWindow, cut_windows, quietest_place
from tests.audio.sounds import tone


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 5000), max_size=12),
    st.floats(0.02, 0.5),
)
def test_windows_are_the_recording_cut_into_pieces(lengths: list[int], seconds: float) -> None:
    random = np.random.default_rng(1)
    blocks = [random.normal(0, 0.1, length).astype(np.float32) for length in lengths]
    windows = list(cut_windows(blocks, seconds))
    whole = np.concatenate([np.zeros(0, np.float32), *blocks])
    assert np.array_equal(np.concatenate([window.samples for window in windows]), whole)
    assert all(len(window.samples) <= seconds * 16_000 for window in windows)
    starts = np.cumsum([0, *(len(window.samples) for window in windows[:-1])]) / 16_000
    assert np.allclose([window.start for window in windows], starts)
    assert all(len(window.samples) for window in windows[:-1])


def test_cuts_are_in_pauses() -> None:
    pause = np.zeros(8_000, np.float32)
    recording = np.concatenate([tone(300, 1.2), pause, tone(400, 1.3), pause, tone(500, 1.1)])
    windows = list(cut_windows([recording], 3.0))
    assert len(windows) == 2
    assert 1.2 < windows[0].end < 1.7 and not windows[0].samples[-800:].any()


def test_the_quietest_place_is_in_the_second_half() -> None:
    samples = np.ones(16_000, np.float32)
    samples[2_000:4_000] = 0.0
    samples[10_000:14_000] = 0.1
    assert 10_000 < quietest_place(samples) < 14_000


@pytest.mark.parametrize(("level", "silent"), [(0.0, True), (0.0005, True), (0.01, False)])
def test_silence(level: float, silent: bool) -> None:
    assert AudioWindow(np.full(100, level, np.float32), 0.0).silent is silent
