"""Pickles that try to run something when they are opened. Each would write the file that it is given."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

Build = Callable[[str], bytes]  # a file to write if the payload runs -> a pickle


class Calls:
    """An object whose pickle calls a function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.function, self.arguments


def by_name(name: str, *arguments: bytes, protocol: bytes = b"\x80\x02") -> bytes:
    """GLOBAL, arguments, REDUCE: a call of something that pickle itself would not write."""
    return protocol + b"c" + name.replace(".", "\n", 1).encode() + b"\n(" + b"".join(arguments) + b"tR."


def text(value: str) -> bytes:
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def code(mark: str) -> str:
    return f"open({mark!r}, 'w').close()"


def stacked(module: str, name: str, argument: str) -> bytes:
    """The same with STACK_GLOBAL of protocol 4."""
    short = [b"\x8c" + bytes([len(item)]) + item.encode() for item in (module, name)]
    return b"\x80\x04" + short[0] + short[1] + b"\x93" + text(argument) + b"\x85R."


def in_a_tensor(mark: str) -> bytes:
    """Weights as they should be, and a call among them."""
    weights: dict[str, Any] = {"transformer.wte.weight": 1, "x": Calls(eval, code(mark))}
    return pickle.dumps(weights, protocol=2)


PAYLOADS: dict[str, Build] = {
    "eval": lambda mark: pickle.dumps(Calls(eval, code(mark)), protocol=2),
    "exec": lambda mark: pickle.dumps(Calls(exec, code(mark)), protocol=2),
    "open": lambda mark: pickle.dumps(Calls(open, mark, "w"), protocol=2),
    "os.system": lambda mark: by_name("os.system", text(f"touch {mark}")),
    "posix.system": lambda mark: by_name("posix.system", text(f"touch {mark}")),
    "subprocess": lambda mark: by_name("subprocess.getoutput", text(f"touch {mark}")),
    "python 2 name": lambda mark: by_name("__builtin__.eval", text(code(mark))),
    "pathlib": lambda mark: pickle.dumps(Calls(Path.touch, Path(mark)), protocol=2),
    "stack global": lambda mark: stacked("builtins", "eval", code(mark)),
    "dotted attribute": lambda mark: stacked("pathlib", "Path.touch", mark),
    "inst": lambda mark: b"(" + text(code(mark)) + b"ibuiltins\neval\n.",
    "obj": lambda mark: b"(cbuiltins\neval\n" + text(code(mark)) + b"o.",
    "new object": lambda mark: b"\x80\x02cbuiltins\neval\n" + text(code(mark)) + b"\x85\x81.",
    "build": lambda mark: b"\x80\x02ctorch\nTensor\n)R" + b"}" + text("__reduce__") + text(code(mark)) + b"sb" + b".",
    "torch.hub": lambda mark: by_name("torch.hub._load_local", text(mark), text(mark)),
    "torch.load": lambda mark: by_name("torch.serialization.load", text(mark)),
    "nested pickle": lambda mark: by_name("pickle.loads", text(code(mark))),
    "runpy": lambda mark: by_name("runpy.run_path", text(mark)),
    "in a tensor": in_a_tensor,
    "importlib": lambda mark: by_name("importlib.import_module", text("antigravity")),
    "numpy": lambda mark: by_name("numpy.fromfile", text(mark)),
    "extension": lambda mark: b"\x80\x02\x82\x01" + text(code(mark)) + b"\x85R.",
    "bytearray bomb": lambda mark: by_name("builtins.bytearray", b"\x8a\x06" + (10**14).to_bytes(6, "little")),
    "tensor bomb": lambda mark: by_name("torch.Tensor", b"J" + struct.pack("<i", 2**31 - 1), b"J\xff\xff\xff\x7f"),
}


def bare(program: bytes) -> bytes:
    """As it is."""
    return program


def legacy(program: bytes) -> bytes:
    """In the format of torch before 1.6: magic number, version, system, the program, keys."""
    parts = io.BytesIO()
    for value in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}):
        pickle.dump(value, parts, protocol=2)
    parts.write(program)
    pickle.dump([], parts, protocol=2)
    return parts.getvalue()


def zipped(program: bytes) -> bytes:
    """In the format of today, with the program in the place of the description."""
    plain = io.BytesIO()
    torch.save({"x": torch.zeros(2)}, plain)
    result = io.BytesIO()
    with zipfile.ZipFile(plain) as before, zipfile.ZipFile(result, "w") as after:
        for entry in before.infolist():
            after.writestr(entry.filename, program if entry.filename.endswith("data.pkl") else before.read(entry))
    return result.getvalue()
