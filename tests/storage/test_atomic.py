"""What is renamed into its place is on the disk before, and the new name after: a crash leaves the old or the new."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from heedful.storage import atomic, folder
from heedful.storage.module_weights import save_weights
from heedful.training import checkpoint
from heedful.training.checkpoint import TrainState

from ..training.test_checkpoint import stepped
from .test_folder import make


class Synced(NamedTuple):
    """A call of fsync: which file or folder, and when it was last written."""

    inode: int
    written: int


class Renamed(NamedTuple):
    """A rename: the new name, what has it now, and the folder that the name is in."""

    name: str
    content: tuple[Synced, ...]
    parent: int


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Synced | Renamed]:
    """The calls of os.fsync and os.replace, in their order."""
    made: list[Synced | Renamed] = []
    really_sync, really_replace = os.fsync, os.replace

    def sync(handle: int) -> None:
        really_sync(handle)
        status = os.fstat(handle)
        made.append(Synced(status.st_ino, status.st_mtime_ns))

    def rename(old: Any, new: Any) -> None:
        old, new = Path(old), Path(new)
        every = [old, *(old.iterdir() if old.is_dir() else [])]
        content = tuple(Synced(item.stat().st_ino, item.stat().st_mtime_ns) for item in every)
        really_replace(old, new)
        made.append(Renamed(new.name, content, new.parent.stat().st_ino))

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", rename)
    return made


def check(calls: list[Synced | Renamed]) -> list[str]:
    """Everything renamed was forced to the disk as it is, and so was the rename -> the new names."""
    names = []
    for place, call in enumerate(calls):
        if isinstance(call, Renamed):
            assert set(call.content) <= set(calls[:place]), f"{call.name} was renamed before it was on the disk"
            later = [item.inode for item in calls[place:] if isinstance(item, Synced)]
            assert call.parent in later, f"the name {call.name} was not forced to the disk"
            names.append(call.name)
    return names


def write_folder(path: Path) -> None:
    with atomic.atomic_folder(path / "new") as new:
        (new / "one").write_text("1")
        (new / "two").write_text("2")


def write_checkpoint(path: Path) -> None:
    checkpoint.save(path, *stepped(), TrainState(update=7), keep=2)


def write_mean(path: Path) -> None:
    checkpoint.add_weights(path, stepped()[0], TrainState(update=7), keep=2)


WEIGHTS = "model.safetensors"
WRITERS: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "file": (lambda path: atomic.atomic_write(path / "file", "text"), ["file"]),
    "weights": (lambda path: save_weights(stepped()[0].state_dict(), path / WEIGHTS), [WEIGHTS]),
    "folder": (write_folder, ["new"]),
    "checkpoint": (write_checkpoint, [WEIGHTS, "optimizer.safetensors", "step-7"]),
    "weights for averaging": (write_mean, ["7.safetensors"]),
}


@pytest.mark.parametrize("name", WRITERS)
def test_content_is_on_the_disk_before_its_name_and_then_the_name(
    tmp_path: Path, calls: list[Synced | Renamed], name: str
) -> None:
    write, names = WRITERS[name]
    write(tmp_path)
    assert check(calls) == names


def test_a_model_folder_is_on_the_disk_file_by_file_with_its_description_last(
    tmp_path: Path, calls: list[Synced | Renamed]
) -> None:
    saved = make(tmp_path / "model")
    calls.clear()
    folder.save_folder(replace(saved, path=tmp_path / "model"))
    files = [WEIGHTS, "tokenizer.json", "generation_config.json", "README.md", "config.json"]
    assert check(calls) == ["config.json", *files]  # first with both digests


def test_a_folder_that_fails_leaves_no_parents(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), atomic.atomic_folder(tmp_path / "out" / "a" / "b") as made:
        assert made.is_dir()
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "out").mkdir()
    with pytest.raises(RuntimeError), atomic.atomic_folder(tmp_path / "out" / "a"):
        raise RuntimeError
    assert [path.name for path in tmp_path.rglob("*")] == ["out"]
    with atomic.atomic_folder(tmp_path / "new" / "a") as made:
        (made / "x").touch()
    assert (tmp_path / "new" / "a" / "x").is_file()
