"""Runs one window of a recording through a speech recognizer and records it, for the page and the figures.

The page shows the spectrogram with cross-attention over time, and each token under the sound that it came from.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.audio.audio_files import AudioFile
from heedful.audio.log_mel import FRAMES_PER_SECOND
from heedful.errors import SettingError
from heedful.inference.record import record
from heedful.inference.transcriber import Transcriber
from heedful.inside.beam_tree import BeamTree
from heedful.inside.recorded_run import RecordedRun, RecordedSound
from heedful.inside.tokens import TokenReader, TokenSide
from heedful.storage.folder import ModelFolder

ALIGNED_HEADS = 4  # heads whose mean shows where a token was heard
RECORDED = ("decoder*", "encoder", "front_end", "logits")  # the attention of the encoder is too large for a page


@torch.inference_mode()
def record_speech(folder: ModelFolder, path: str, target: str | None, search: dict[str, Any]) -> RecordedRun:
    """Transcribe the first window of a file that has speech, or take `target` as its transcript, and record it."""
    transcriber, tree = Transcriber(folder), BeamTree()
    windows = list(transcriber.windows(AudioFile.of(Path(path))))
    window = next((window for window in windows if not window.silent), None)
    if window is None:
        raise SettingError(f"{path} has no sound above -60 dB; give a recording of speech.")
    model, tokenizer = transcriber.modules[0], folder.tokenizer
    features = transcriber.features(window)
    prompt = transcriber.prompt(None, False, features)
    if target is None:
        transcriber.observer = tree
        next(transcriber.transcribe_windows([window], **search))
        best = tree.hypotheses[0]
        written = [*best.ids, *([tokenizer.eos_id] if best.finished else [])]
    else:
        text = f" {target}" if transcriber.whisper else target
        written = [*[*prompt, *tokenizer.encode(text)][: model.config.max_length - 1], tokenizer.eos_id]
    read = [tokenizer.bos_id, *written[:-1]]
    with record(model, *RECORDED) as recorded:
        frames = torch.from_numpy(features.frames)[None]
        hidden = model(frames, torch.tensor([read]), torch.tensor([features.positions]))
        model.project(hidden)
    step = model.config.feature_stride / FRAMES_PER_SECOND
    positions = min(features.positions, max(1, round((window.end - window.start) / step)))
    trace = {name: tensor.as_subclass(Tensor) for name, tensor in recorded.sentence(0).items()}
    note = "" if len(windows) == 1 else f"Shown are seconds {window.start:.1f} to {window.end:.1f} of the recording."
    return RecordedRun(
        folder=folder,
        text=Path(path).name,
        output=transcriber.decode(written),
        source=_times(positions, step),
        target=TokenReader(tokenizer).side(read),
        labels=written,
        trace={name: _real_positions(name, tensor, positions) for name, tensor in trace.items()},
        tree=None if target is not None else tree,
        note=note,
        sound=RecordedSound(features.frames[: positions * model.config.feature_stride], step),
    )


def _times(positions: int, step: float) -> TokenSide:
    """The positions of the encoder, named by their time in seconds."""
    names = [f"{number * step:.2f}" for number in range(positions)]
    return TokenSide(list(range(positions)), names, [False] * positions, list(range(positions)), names)


def _real_positions(name: str, tensor: Tensor, positions: int) -> Tensor:
    """Without the silence that a window was padded with; attention to it is left out."""
    if ".cross.weights" in name:
        return tensor[..., :positions]
    if ".cross.keys" in name or ".cross.values" in name:
        return tensor[:, :positions]
    return tensor[:positions] if name.startswith(("encoder", "front_end")) else tensor


def aligned_heads(weights: Tensor) -> list[tuple[int, int]]:
    """(L, H, T, S) -> the heads that move through the sound as the text does.

    Ranked by how much weight a monotonic path through the attention of a head collects.
    """
    layers, heads, tokens, _ = weights.shape
    scores = []
    for layer in range(layers):
        for head in range(heads):
            matrix = weights[layer, head].double().numpy()
            path = monotonic_path(matrix)
            moved = path[-1] - path[0] if tokens > 1 else 1
            scores.append((float(matrix[np.arange(tokens), path].mean()) * (moved > 0), layer, head))
    best = sorted(scores, key=lambda score: (-score[0], score[1], score[2]))[:ALIGNED_HEADS]
    return [(layer, head) for _, layer, head in best]


def monotonic_path(weights: NDArray[np.float64]) -> list[int]:
    """(T, S) -> a position for each token, never falling, whose weights have the largest sum of logarithms."""
    scores = np.log(weights + 1e-6)
    total, choices = scores[0], []
    for row in scores[1:]:
        best = np.maximum.accumulate(total)
        where = np.maximum.accumulate(np.where(total == best, np.arange(len(total)), 0))
        choices.append(where)
        total = best + row
    path = [int(total.argmax())]
    for where in reversed(choices):
        path.append(int(where[path[-1]]))
    return path[::-1]
