"""Checkpoints in `checkpoints/step-N/`: everything that a run needs to resume exactly.

A checkpoint is written to a temporary folder, hashed, synced and renamed, so it is complete or absent. The weights of
the last few regular checkpoints stay in `checkpoints/weights/` for averaging (section 6.1 of the paper).
"""

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import ClassVar

import torch
from pydantic import ConfigDict, TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from heedful.errors import FolderError
from heedful.files import find, read_json
from heedful.storage.atomic import atomic_folder, digest, explain_os_errors
from heedful.storage.module_weights import save_weights
from heedful.training.optim.adam import Optimizer

WEIGHTS, OPTIMIZER, STATE, MANIFEST = "model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"


@dataclass
class TrainState:
    """The position of a run, besides weights and optimizer."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    update: int = 0  # updates done
    epoch: int = 0
    batch: int = 0  # batches done of this epoch
    tokens: int = 0  # target tokens trained on
    total: int = 0  # updates planned
    every: int = 0  # updates between two regular checkpoints
    given: float = 0.0  # time budget in seconds, 0 without one
    planned: bool = False  # whether `total` follows from the time budget and the measured speed
    elapsed: float = 0.0  # seconds of training, all sessions together
    update_seconds: float = 0.0  # mean of the last updates
    validated: int = 0  # update of the last validation
    validation_seconds: float | None = None  # of the last validation and its checkpoint
    valid_tokens: int = 0  # validation tokens for the loss, and sentences to translate: 0 for all,
    valid_sentences: int = 0  # else the number that the first validation of a timed run had time for
    search_seconds: float = 0.0  # of the last validation, for its search
    best: list[float] | None = None  # score of the best validation so far
    best_update: int = 0
    stale: int = 0  # validations since then
    averaged: list[int] = field(default_factory=list)  # updates whose weights are kept for averaging
    average: int = 1  # how many of them the last validated model averages
    ended: str = ""  # why training ended; empty while it continues


STATES = TypeAdapter(TrainState)


def save(folder: Path, model: nn.Module, optimizer: Optimizer, state: TrainState, keep: int) -> Path:
    """Write `folder/step-N` and delete all but the last `keep` checkpoints."""
    path = folder / f"step-{state.update}"
    with atomic_folder(path) as new:
        save_weights(model.state_dict(), new / WEIGHTS)
        save_weights(_moments(model, optimizer), new / OPTIMIZER)
        (new / STATE).write_text(json.dumps(asdict(state), indent=2))
        manifest = {name: digest(new / name) for name in (WEIGHTS, OPTIMIZER, STATE)}
        (new / MANIFEST).write_text(json.dumps(manifest, indent=2))
    for old in steps(folder)[:-keep]:
        shutil.rmtree(old, ignore_errors=True)
    return path


def steps(folder: Path) -> list[Path]:
    """All checkpoints, the oldest first."""
    paths = [path for path in folder.glob("step-*") if path.name.removeprefix("step-").isdigit()]
    return sorted(paths, key=lambda path: int(path.name.removeprefix("step-")))


def latest(folder: Path) -> Path | None:
    """The newest intact checkpoint; None if there is none yet."""
    damaged = []
    for path in reversed(steps(folder)):
        if _intact(path):
            return path
        damaged.append(path.name)
    if damaged:
        raise FolderError(f"{folder}: every checkpoint is damaged ({', '.join(damaged)}); the run cannot be resumed.")
    return None


def load(path: Path, model: nn.Module, optimizer: Optimizer) -> TrainState:
    """Restore weights and optimizer."""
    try:
        model.load_state_dict(load_file(path / WEIGHTS))
        moments = load_file(path / OPTIMIZER)
        parameters = dict(model.named_parameters())
        for key, moment in moments.items():
            name, _, kind = key.rpartition(".")
            optimizer.state[parameters[name]][kind] = moment.to(parameters[name].device)
        return STATES.validate_python(read_json(path, STATE) or {})
    except ValidationError as error:
        raise FolderError(
            f"{path / STATE} is damaged ({error.errors()[0]['msg']}); the run cannot be resumed."
        ) from None
    except (SafetensorError, RuntimeError, KeyError, TypeError) as error:
        raise FolderError(f"{path} does not belong to this run's settings ({error}).") from None


def add_weights(folder: Path, model: nn.Module, state: TrainState, keep: int) -> None:
    """Save these weights for averaging, and drop the oldest beyond `keep`."""
    with explain_os_errors(folder):
        (folder / "weights").mkdir(parents=True, exist_ok=True)
    save_weights(model.state_dict(), _weights(folder, state.update))
    state.averaged = [*state.averaged, state.update][-keep:]


def delete_unused_weights(folder: Path) -> None:
    """Delete weights that no checkpoint refers to."""
    used = {update for path in steps(folder) for update in _averaged(path)}
    for leftover in (folder / "weights").glob(".*.tmp"):  # of a killed run
        leftover.unlink(missing_ok=True)
    for path in (folder / "weights").glob("*.safetensors"):
        if not path.stem.isdigit() or int(path.stem) not in used:
            path.unlink(missing_ok=True)


def average(folder: Path, updates: Sequence[int]) -> dict[str, Tensor]:
    """The mean of saved weights, summed in double precision."""
    total: dict[str, Tensor] = {}
    for update in updates:
        path = _weights(folder, update)
        find(path.parent, path.name)
        try:
            weights = load_file(path)
        except (SafetensorError, OSError) as error:
            reason = f"{path} cannot be read ({error}); remove it and resume: averaging continues without it."
            raise FolderError(reason) from None
        for name, tensor in weights.items():
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    return {name: (tensor / len(updates)).to(torch.float32) for name, tensor in total.items()}


def drop_lost(folder: Path, state: TrainState) -> list[int]:
    """Remove missing weights from the average; the updates that they belong to."""
    lost = [update for update in state.averaged if not find(folder / "weights", f"{update}.safetensors")]
    state.averaged = [update for update in state.averaged if update not in lost]
    return lost


def _averaged(path: Path) -> list[int]:
    """The updates whose weights a checkpoint refers to; none if it is damaged."""
    try:
        return list((read_json(path, STATE) or {})["averaged"])
    except (FolderError, OSError, KeyError, TypeError):
        return []


def _weights(folder: Path, update: int) -> Path:
    return folder / "weights" / f"{update}.safetensors"


def _moments(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    return {
        f"{name}.{kind}": value
        for name, parameter in model.named_parameters()
        for kind, value in optimizer.state[parameter].items()
    }


def _intact(path: Path) -> bool:
    try:
        manifest = read_json(path, MANIFEST) or {}
        return set(manifest) == {WEIGHTS, OPTIMIZER, STATE} and all(
            find(path, name) and digest(path / name) == expected for name, expected in manifest.items()
        )
    except (FolderError, OSError):
        return False
