"""Runs one window of a recording through a speech recognizer and records it, for the page and the figures.

The page shows the spectrogram with cross-attention over time, and each word under the sound that it came from.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
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
        sound=RecordedSound(
            features.frames[: positions * model.config.feature_stride],
            step,
            [row for row, token in enumerate(written) if transcriber.text_ids([token]) and token != tokenizer.eos_id],
        ),
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
