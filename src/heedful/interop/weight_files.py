"""The tensors of a foreign model folder by name: safetensors (one file, or shards with an index) or a legacy pickle.

Shapes are known before any tensor is read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from heedful.errors import FolderError, quote
from heedful.files import find, read_json
from heedful.interop import pickles
from heedful.storage.module_weights import FLOATS

SAFE, PICKLED = "model.safetensors", "pytorch_model.bin"
MOST_HEADER = 16 << 20
MOST_SHARDS = 1000


@dataclass(frozen=True)
class ForeignWeights:
    """Shapes by name, and a function that reads a tensor."""

    where: Path
    shapes: dict[str, tuple[int, ...]]
    get: Callable[[str], Tensor]

    def read(self, name: str) -> Tensor:
        """One tensor in float32."""
        tensor = self.get(name)
        if tensor.dtype not in FLOATS:
            raise FolderError(
                f"{self.where}: {quote(name)} is stored as {tensor.dtype}, not as floating-point numbers."
            )
        return tensor.detach().to(torch.float32).contiguous()

    def renamed(self, names: dict[str, str]) -> ForeignWeights:
        """The same tensors under new names; `names` maps old to new."""
        old = {new: name for name, new in names.items()}
        if len(old) != len(names):
            raise FolderError(f"{self.where} holds the same tensor under two names that differ only in their prefix.")
        return ForeignWeights(self.where, {new: self.shapes[old[new]] for new in old}, lambda new: self.get(old[new]))


def open_weights(path: Path) -> ForeignWeights:
    """Open safetensors files, or else pickles."""
    if file := find(path, SAFE):
        return _safe([file])
    if shards := _shards(path, SAFE):
        return _safe(shards)
    if file := find(path, PICKLED):
        return _pickled([file])
    if shards := _shards(path, PICKLED):
        return _pickled(shards)
    raise FolderError(f"{path} has neither {SAFE} nor {PICKLED}; a model folder holds its weights there.")


def _shards(path: Path, name: str) -> list[Path]:
    """The shards listed in the index file, if there is one."""
    index = f"{name}.index.json"
    content = read_json(path, index)
    if content is None:
        return []
    table = content.get("weight_map")
    if not isinstance(table, dict) or not all(isinstance(shard, str) for shard in table.values()):
        raise FolderError(f"{path / index}: weight_map is not a table of tensors and files.")
    names = sorted(set(table.values()))
    if not 1 <= len(names) <= MOST_SHARDS:
        raise FolderError(f"{path / index} lists {len(names):,} files; it must list 1 to {MOST_SHARDS:,}.")
    ending = Path(name).suffix
    files = []
    for shard in names:
        if not shard.endswith(ending):
            raise FolderError(f"{path / index} names {quote(shard)}, which is not a {ending} file.")
        file = find(path, shard)
        if file is None:
            raise FolderError(f"{path} has no {quote(shard)}, which {index} names; copy the folder again.")
        files.append(file)
    return files


def _safe(files: list[Path]) -> ForeignWeights:
    shapes: dict[str, tuple[int, ...]] = {}
    home: dict[str, tuple[Path, Any]] = {}
    for file in files:
        content = _opened(file)
        for name in content.keys():  # noqa: SIM118
            _add(shapes, name, tuple(content.get_slice(name).get_shape()), file)
            home[name] = file, content

    def get(name: str) -> Tensor:
        file, content = home[name]
        try:
            tensor: Tensor = content.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise FolderError(f"{file} is damaged ({quote(str(error))}); copy it again.") from None
        return tensor

    return ForeignWeights(files[0], shapes, get)


def _opened(file: Path) -> Any:
    """A safetensors file, its header read and checked, its tensors not yet read."""
    try:
        with file.open("rb") as content:
            start = content.read(8)
        if len(start) == 8 and struct.unpack("<Q", start)[0] > MOST_HEADER:
            raise FolderError(f"{file} is damaged: its header has more than {MOST_HEADER:,} bytes; copy it again.")
        return safe_open(file, framework="pt")
    except (SafetensorError, OSError) as error:
        raise FolderError(f"{file} is damaged ({quote(str(error))}); copy it again.") from None


def _pickled(files: list[Path]) -> ForeignWeights:
    shapes: dict[str, tuple[int, ...]] = {}
    tensors: dict[str, Tensor] = {}
    for file in files:
        for name, tensor in pickles.load(file).items():
            _add(shapes, name, tuple(tensor.shape), file)
            tensors[name] = tensor
    return ForeignWeights(files[0], shapes, tensors.__getitem__)


def _add(shapes: dict[str, tuple[int, ...]], name: str, shape: tuple[int, ...], file: Path) -> None:
    if name in shapes:
        raise FolderError(f"{file} holds {quote(name)}, and so does another file of the folder.")
    shapes[name] = shape
