"""Recordings -> padded tensors of log-mel frames, with SpecAugment: the last step from an audio corpus to the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.audio.log_mel import FeatureFrames, Frames
from heedful.config import ModelConfig, TrainSettings
from heedful.data.audio_corpus import AudioPairs
from heedful.data.batch import Batch, pad_ids
from heedful.text import Specials

QUIETEST, RANGE = -1.5, 2.0  # log-mel value of silence: not below the one, and so far below the loudest value


@dataclass(frozen=True)
class SpecAugment:
    """SpecAugment (Park et al., 2019) without time warping: the mean replaces bands of bins and spans of time."""

    freq_masks: int
    freq_mask_width: int
    time_masks: int
    time_mask_share: float

    @classmethod
    def of(cls, settings: TrainSettings) -> Self:
        return cls(
            settings.freq_masks, settings.freq_mask_width, settings.time_masks, settings.time_mask_share
        )  # fmt: skip

    def apply(self, frames: Frames, random: np.random.Generator) -> Frames:
        """(T, F) -> (T, F), a copy."""
        masked, mean = frames.copy(), frames.mean()
        for _ in range(self.freq_masks):
            start, end = _span(frames.shape[1], self.freq_mask_width, random)
            masked[:, start:end] = mean
        for _ in range(self.time_masks):
            start, end = _span(len(frames), int(self.time_mask_share * len(frames)), random)
            masked[start:end] = mean
        return masked


def _span(length: int, widest: int, random: np.random.Generator) -> tuple[int, int]:
    width = int(random.integers(0, min(widest, length) + 1))
    start = int(random.integers(0, length - width + 1))
    return start, start + width


def collate_audio(
    pairs: AudioPairs,
    indices: Sequence[int] | NDArray[np.integer],
    specials: Specials,
    config: ModelConfig,
    augment: tuple[SpecAugment, np.random.Generator] | None = None,
) -> Batch:
    """Collate the recordings at `indices`; `source_lengths` counts positions of the encoder."""
    rows = np.asarray(indices, np.int64)
    recordings = []
    for row in rows.tolist():
        frames = pairs.source(row)
        frames = frames if augment is None else augment[0].apply(frames, augment[1])
        recordings.append(FeatureFrames.of(pad_with_silence(frames, config), config.feature_stride))
    source, source_lengths = pad_features(recordings)
    targets, target_lengths = pad_ids(pairs.targets, rows, specials, start=True)
    return Batch(
        source=source,
        target=torch.from_numpy(targets),
        source_lengths=source_lengths,
        target_lengths=torch.from_numpy(target_lengths),
        tokens=int(target_lengths.sum()),
    )


def pad_with_silence(frames: Frames, config: ModelConfig) -> Frames:
    """(T, F) -> (T', F): frames of silence up to the whole window of the model, if it wants them."""
    missing = config.source_length * config.feature_stride - len(frames) if config.full_window else 0
    if missing <= 0:
        return frames
    silence = max(QUIETEST, float(frames.max(initial=QUIETEST)) - RANGE)
    return np.pad(frames, ((0, missing), (0, 0)), constant_values=silence)


def pad_features(recordings: Sequence[FeatureFrames]) -> tuple[Tensor, Tensor]:
    """-> (B, frames, F), padded with zeros, and (B,) positions."""
    longest, bins = max(len(recording.frames) for recording in recordings), recordings[0].frames.shape[1]
    padded = np.zeros((len(recordings), longest, bins), np.float32)
    for row, recording in zip(padded, recordings, strict=True):
        row[: len(recording.frames)] = recording.frames
    return torch.from_numpy(padded), torch.tensor([recording.positions for recording in recordings])
