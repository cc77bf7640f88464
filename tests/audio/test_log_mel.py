"""Log-mel frames against transformers' feature extractor and a plain loop over frames."""

from __future__ import annotations

import numpy as np
import pytest
from transformers import WhisperFeatureExtractor
from transformers.audio_utils import mel_filter_bank

from heedful.audio.log_mel import FeatureFrames, log_mel, mel_filters
from tests.audio.sounds import tone, word


def speech(seconds: float) -> np.ndarray:
    words = np.concatenate([word(letters, seed) for seed in range(5) for letters in ("ma", "ti", "so")])
    return np.resize(words, int(seconds * 16_000))


@pytest.mark.parametrize("bins", [80, 128])
def test_frames_are_those_of_transformers(bins: int) -> None:
    samples = np.pad(speech(7.3), (0, 480_000 - int(7.3 * 16_000)))
    theirs = WhisperFeatureExtractor(feature_size=bins)(samples, sampling_rate=16_000, return_tensors="np")
    ours = log_mel(samples, bins)
    assert ours.dtype == np.float32 and ours.shape == (3000, bins)
    assert np.abs(ours - theirs.input_features[0].T).max() < 1e-4


@pytest.mark.parametrize("bins", [40, 80])
def test_filters_are_slaneys(bins: int) -> None:
    theirs = mel_filter_bank(201, bins, 0.0, 8000.0, 16_000, norm="slaney", mel_scale="slaney")
    assert np.allclose(mel_filters(bins), theirs, atol=1e-12)


def test_a_short_recording_against_a_loop() -> None:
    samples = word("ku")
    padded = np.concatenate([samples[200:0:-1], samples, samples[-2:-202:-1]]).astype(np.float64)
    rows = []
    for frame in range(len(samples) // 160):
        window = padded[160 * frame : 160 * frame + 400] * 0.5 * (1 - np.cos(2 * np.pi * np.arange(400) / 400))
        power = np.abs(np.array([np.sum(window * np.exp(-2j * np.pi * k * np.arange(400) / 400)) for k in range(201)]))
        rows.append(np.log10(np.maximum(power**2 @ mel_filters(80), 1e-10)))
    expected = np.array(rows)
    expected = (np.maximum(expected, expected.max() - 8) + 4) / 4
    assert np.abs(log_mel(samples) - expected).max() < 1e-5


def test_a_tone_is_loudest_in_its_own_band() -> None:
    bands = [int(log_mel(tone(hertz, 0.5)).mean(0).argmax()) for hertz in (200, 500, 1000, 2000, 4000)]
    assert bands == sorted(set(bands))


def test_frames_are_padded_to_whole_positions() -> None:
    frames = np.ones((5, 3), np.float32)
    features = FeatureFrames.of(frames, 2)
    assert len(features) == 3 and features.frames.shape == (6, 3)
    assert (features.frames[5] == 0).all()
    assert len(log_mel(np.zeros(159, np.float32))) == 0
