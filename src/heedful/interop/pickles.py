"""Weights that were saved as a pickle, opened so that nothing in them runs and nothing takes more memory than the file.

A pickle is a program. Before torch sees it, every instruction is read without following it: only those that describe
named tensors are let through, and no number in them may be larger than the file can hold. Then `torch.load` opens it
with `weights_only=True`.
"""

from __future__ import annotations

import io
import pickletools
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from heedful.errors import FolderError, quote

MOST_PICKLE = 16 << 20  # bytes of the program; the numbers of the tensors come after it
LEGACY = bytes.fromhex("80028a0a6cfc9c46f9206aa85019")  # how files begin that torch wrote before version 1.6
INTEGERS = {"BININT", "BININT1", "BININT2", "LONG1"}
STRINGS = {"BINUNICODE", "SHORT_BINSTRING"}
PUTS, GETS = {"BINPUT", "LONG_BINPUT"}, {"BINGET", "LONG_BINGET"}
RECALLED = STRINGS | {"GLOBAL", "REDUCE"}  # what a pickle of tensors mentions twice; nested tuples could explode
INSTRUCTIONS = INTEGERS | STRINGS | PUTS | GETS | {
    "PROTO", "MARK", "STOP", "NONE", "NEWTRUE", "NEWFALSE", "BINFLOAT", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE",
    "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "SETITEM", "SETITEMS", "APPEND", "APPENDS", "GLOBAL", "REDUCE", "BUILD",
    "BINPERSID",
}  # fmt: skip
STORAGES = ("Float", "Half", "BFloat16", "Double", "Long", "Int", "Short", "Char", "Byte", "Bool")
NAMES = {
    "collections OrderedDict",
    "torch._utils _rebuild_tensor_v2",
    "torch._utils _rebuild_parameter",
    *(f"torch {kind}Storage" for kind in STORAGES),
}


def load(path: Path) -> dict[str, Tensor]:
    """The tensors of a pytorch_model.bin, by name."""
    loaded = load_checkpoint(path)
    nested = loaded.get("state_dict")
    return named_tensors(nested if set(loaded) == {"state_dict"} and isinstance(nested, dict) else loaded, path)


def load_checkpoint(path: Path) -> dict[Any, Any]:
    """A dictionary of tensors and numbers, perhaps nested."""
    try:
        with path.open("rb") as file:
            zipped = _inspect(file, path)
        loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
    except FolderError:
        raise
    except Exception as error:  # torch and zipfile raise a dozen kinds for damaged files
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise FolderError(f"{path} is damaged ({quote(reason)}); copy it again.") from None
    if not isinstance(loaded, dict):
        raise FolderError(f"{path} holds a {type(loaded).__name__} where tensors by name are expected.")
    return loaded


def _inspect(file: IO[bytes], path: Path) -> bool:
    """Refuse a pickle that does not only describe tensors; True if it is in the current format, a zip file."""
    start = file.read(len(LEGACY))
    size = file.seek(0, io.SEEK_END)
    if start.startswith(b"PK"):
        _inspect_program(io.BytesIO(_program(file, path, size)), path, size)
        return True
    if start == LEGACY:
        file.seek(0)
        for numbers_matter in (False, False, False, True, False):  # magic, version, system, tensors, their keys
            _inspect_program(file, path, size, numbers_matter)
        return False
    raise FolderError(f"{path} is not a file of weights that torch saved; get model.safetensors instead.")


def _program(file: IO[bytes], path: Path, size: int) -> bytes:
    """data.pkl of a zip file in which nothing is compressed, as torch writes it."""
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise FolderError(f"{path} is compressed, which weights that torch saved never are.")
        if sum(entry.file_size for entry in entries) > size:
            raise FolderError(f"{path} says that it holds more than its {size:,} bytes; it is damaged or hostile.")
    reader = torch._C.PyTorchFileReader(str(path))
    if sum(name == "data.pkl" for name in reader.get_all_records()) != 1:
        raise FolderError(f"{path} is not a file of weights that torch saved; get model.safetensors instead.")
    program: bytes = reader.get_record("data.pkl")
    return program


def _inspect_program(file: IO[bytes], path: Path, size: int, numbers_matter: bool = True) -> None:
    total, before = 0, ""
    memory: dict[int, str] = {}  # number in the pickle's memory -> the instruction that made what lies there
    for name, argument, place in _instructions(file, path):
        if place > MOST_PICKLE:
            raise FolderError(f"{path} has a description of more than {MOST_PICKLE:,} bytes; weights need less.")
        if name == "GLOBAL" and argument not in NAMES:
            raise _refused(path, quote(str(argument).replace(" ", ".")))
        if name not in INSTRUCTIONS:
            raise _refused(path, f"the instruction {name}")
        if name in PUTS:
            memory[argument] = before
        if name in GETS and memory.get(argument) not in RECALLED:
            raise _refused(path, "the same number or tuple twice")
        if name in INTEGERS and numbers_matter:
            total += abs(argument)
            if total > 4 * size:
                raise FolderError(f"{path} describes tensors larger than its {size:,} bytes; it is damaged or hostile.")
        before = name


def _instructions(file: IO[bytes], path: Path) -> Iterator[tuple[str, Any, int]]:
    start = file.tell()
    try:
        for operation, argument, place in pickletools.genops(file):
            yield operation.name, argument, (place or 0) - start
    except ValueError:
        raise FolderError(f"{path} is damaged; copy it again.") from None


def _refused(path: Path, what: str) -> FolderError:
    return FolderError(
        f"{path} is a pickle that asks for {what}, which no set of weights needs; nothing in it was run. "
        "Get model.safetensors instead."
    )


def named_tensors(loaded: dict[Any, Any], path: Path) -> dict[str, Tensor]:
    """Tensors by name, of which no two share memory unless they are the same."""
    spans: dict[tuple[int, tuple[int, ...]], int] = {}
    stored: dict[int, int] = {}
    for name, tensor in loaded.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor) or tensor.layout != torch.strided:
            raise FolderError(f"{path} holds {quote(name)}, which is not a named tensor.")
        storage = tensor.untyped_storage()
        stored[storage.data_ptr()] = storage.nbytes()
        spans[tensor.data_ptr(), tuple(tensor.shape)] = tensor.numel() * tensor.element_size()
    if sum(spans.values()) > sum(stored.values()):
        raise FolderError(f"{path} describes tensors larger than what it holds; it is damaged or hostile.")
    return loaded
