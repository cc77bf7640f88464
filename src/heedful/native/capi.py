"""The C interface of the native engine: structures as ctypes, and loading a library that matches them."""

from __future__ import annotations

import ctypes
import struct
from ctypes import c_char_p, c_double, c_float, c_int32, c_int64, c_uint64, c_void_p
from pathlib import Path

ABI = 1  # raised with every change of the functions and structures in csrc/engine.cpp


class EngineError(Exception):
    """Why the native engine is unavailable, as a clause without a full stop."""


class Shape(ctypes.Structure):
    _fields_ = [
        *((name, c_int32) for name in ("width", "inner", "heads", "encoder_layers", "decoder_layers", "vocabulary")),
        *((name, c_int32) for name in ("source_vocabulary", "longest", "activation", "positions")),
        *((name, c_int32) for name in ("norm_first", "embedding_norm", "tied", "int8", "shortlists")),
        *((name, c_float) for name in ("norm_epsilon", "embedding_scale")),
    ]


class Tensor(ctypes.Structure):
    _fields_ = [*((name, c_void_p) for name in ("floats", "wholes", "scales")), ("count", c_int64)]


class SearchOptionsStruct(ctypes.Structure):
    _fields_ = [
        *((name, c_int32) for name in ("beam", "n_best", "limit", "bos", "eos", "pad")),
        ("length_penalty", c_double),
    ]


class TrainConfigStruct(ctypes.Structure):
    _fields_ = [
        *((name, c_int32) for name in ("width", "inner", "heads", "encoder_layers", "decoder_layers", "vocabulary")),
        ("norm_first", c_int32),
        *((name, c_float) for name in ("norm_epsilon", "embedding_scale", "dropout")),
    ]


class BatchStruct(ctypes.Structure):
    _fields_ = [
        *((name, c_void_p) for name in ("sources", "source_lengths", "inputs", "target_lengths", "labels")),
        *((name, c_void_p) for name in ("candidates", "shifts")),
        *((name, c_int32) for name in ("sentences", "candidate_count")),
        ("smoothing", c_float),
        ("consistency", c_float),
        ("seed", c_uint64),
    ]


class Quintic(ctypes.Structure):
    _fields_ = [*((name, c_float) for name in "abc"), ("rounds", c_int32)]


STRUCTURES = (
    Shape,
    Tensor,
    SearchOptionsStruct,
    TrainConfigStruct,
    BatchStruct,
    Quintic,
)  # in the order of heedful_abi


def open_library(path: Path) -> ctypes.CDLL:
    """Load a library and declare its functions; refuses one of another version of heedful."""
    if not path.exists():
        raise EngineError(f"{path} is missing; install heedful again with a C++ compiler, or run `make engine`")
    _check_complete(path)
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise EngineError(f"{path} cannot be loaded: {error}") from None
    _check_abi(library, path)
    for name in ("model", "search", "steps", "learner"):
        getattr(library, f"heedful_{name}").restype = c_void_p
    library.heedful_error.restype = c_char_p
    return library


def _check_abi(library: ctypes.CDLL, path: Path) -> None:
    sizes = (c_int64 * len(STRUCTURES))()
    try:
        abi = library.heedful_abi(sizes, len(sizes))
    except AttributeError:
        abi = -1
    if abi != ABI or sizes[:] != [ctypes.sizeof(structure) for structure in STRUCTURES]:
        raise EngineError(f"{path} belongs to another version of heedful; install it again, or run `make engine`")


def _check_complete(path: Path) -> None:
    """Refuse a truncated ELF file: a process that touches the missing pages dies with SIGBUS.

    The loaders of other systems check this themselves. Comparing sizes also works for libraries edited by tools such
    as auditwheel, which a digest from build time would reject.
    """
    with path.open("rb") as file:
        head = file.read(64)
        if head[:6] != b"\x7fELF\x02\x01":  # 64 bits, little-endian
            return
        try:
            segments, _, _, _, entry, count = struct.unpack_from("<QQIHHH", head, 32)
            file.seek(segments)
            table = file.read(entry * count)
            # type and flags; offset in the file; two addresses; size in the file
            ends = [sum(struct.unpack_from("<8xQ16xQ", table, entry * i)) for i in range(count)]
        except struct.error:
            ends = [2**64]
    if max(ends, default=0) > path.stat().st_size:
        raise EngineError(f"{path} is truncated; install heedful again, or run `make engine`")
