"""The C interface of the compiled engine (csrc/engine.cpp) for ctypes: structures, functions, and loading a library."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from ctypes import POINTER, c_char_p, c_double, c_float, c_int32, c_int64, c_uint64, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

ABI = 12  # raise it, here and in csrc/engine.cpp, when a function or structure changes


class EngineError(Exception):
    """The engine cannot be loaded; the message is a clause that the caller puts into a sentence."""


class ModelConfigStruct(ctypes.Structure):
    """`ModelConfig` of csrc/config.h."""

    _fields_ = [
        *((name, c_int32) for name in ("family", "width", "inner", "heads", "encoder_layers", "decoder_layers")),
        *((name, c_int32) for name in ("vocabulary", "source_vocabulary", "max_length", "activation", "positions")),
        *((name, c_int32) for name in ("pre_norm", "embedding_norm", "tied", "token_types", "head", "pooler")),
        *((name, c_int32) for name in ("labels", "pointer", "features", "feature_stride", "source_length")),
        *((name, c_int32) for name in ("int8", "shortlists")),
        *((name, c_float) for name in ("norm_epsilon", "embedding_scale")),
        *((name, c_float) for name in ("dropout", "attention_dropout", "activation_dropout")),
    ]


class WeightStruct(ctypes.Structure):
    """`WeightTensor` of csrc/gemm_inference.h: float32 values, or int8 values with a scale per row."""

    _fields_ = [*((name, c_void_p) for name in ("floats", "values", "scales")), ("count", c_int64)]


# `Constraint` of csrc/search.h: number of the search, its logits, the ids so far and their number.
CONSTRAINT = ctypes.CFUNCTYPE(None, c_int32, POINTER(c_float), POINTER(c_int32), c_int32)


class SearchOptionsStruct(ctypes.Structure):
    """`SearchOptions` of csrc/search.h."""

    _fields_ = [
        *((name, c_int32) for name in ("beam", "n_best", "limit", "bos", "eos", "pad")),
        *((name, c_int32) for name in ("min_length", "no_repeat_ngram", "loop_guard")),
        *((name, c_int32) for name in ("kept", "stops_at_full_beam", "power_of_length")),
        ("length_penalty", c_double),
    ]


class ForcedPairsStruct(ctypes.Structure):
    """`ForcedPairs` of csrc/forced_decoding.h."""

    _fields_ = [
        *((name, c_void_p) for name in ("source_ids", "source_frames", "source_lengths")),
        *((name, c_void_p) for name in ("hidden", "targets", "target_lengths", "heads")),
        *((name, c_int32) for name in ("pairs", "head_count")),
    ]


class NamedWeightsStruct(ctypes.Structure):
    """`NamedWeights` of csrc/trainer.h."""

    _fields_ = [
        *((name, c_void_p) for name in ("names", "values", "sizes")),
        ("count", c_int32),
        ("positions", c_void_p),
    ]


class BatchStruct(ctypes.Structure):
    """`Batch` of csrc/trainer.h."""

    _fields_ = [
        *((name, c_void_p) for name in ("sources", "source_lengths", "types", "inputs", "target_lengths", "predicted")),
        *((name, c_void_p) for name in ("labels", "candidates", "logit_bias")),
        *((name, c_int32) for name in ("sentences", "candidate_count")),
        *((name, c_float) for name in ("label_smoothing", "rdrop")),
        ("seed", c_uint64),
    ]


class QuinticStruct(ctypes.Structure):
    """`Quintic` of csrc/newton_schulz.h."""

    _fields_ = [*((name, c_float) for name in "abc"), ("iterations", c_int32)]


class AdamTensorsStruct(ctypes.Structure):
    """`AdamTensors` of csrc/adam.h."""

    _fields_ = [
        *((name, c_void_p) for name in ("weights", "gradients", "means", "squares", "updates", "sizes")),
        ("count", c_int32),
    ]


class AdamOptionsStruct(ctypes.Structure):
    """`AdamOptions` of csrc/adam.h."""

    _fields_ = [(name, c_double) for name in ("rate", "beta1", "beta2", "epsilon", "decay")]


STRUCTURES = (  # in the order of heedful_abi
    ModelConfigStruct,
    WeightStruct,
    SearchOptionsStruct,
    ForcedPairsStruct,
    NamedWeightsStruct,
    BatchStruct,
    QuinticStruct,
    AdamTensorsStruct,
    AdamOptionsStruct,
)


def pointer(array: npt.NDArray[Any] | None) -> c_void_p:
    """The address of an array; null for None."""
    return c_void_p(None if array is None else array.ctypes.data)


def concatenate(sequences: Sequence[Sequence[int]]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """All ids, and the length of each sequence."""
    ids = np.fromiter((token for sequence in sequences for token in sequence), np.int32)
    return ids, np.array([len(sequence) for sequence in sequences], np.int32)


def open_library(path: Path) -> ctypes.CDLL:
    """Load a library of this version of heedful and declare its functions."""
    if not path.exists():
        raise EngineError(f"{path} is missing; install heedful again with a C++ compiler, or run `make engine`")
    _check_complete(path)
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise EngineError(f"{path} cannot be loaded: {error}") from None
    _check_abi(library, path)
    for kind in ("model", "search", "decoder", "trainer"):
        getattr(library, f"heedful_{kind}_new").restype = c_void_p
    library.heedful_error.restype = c_char_p
    library.heedful_add_gradients.argtypes = [c_void_p, c_int32, c_int64, c_float, c_void_p, c_int32]
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
    """Refuse a truncated ELF file: a process that touches the missing pages is killed by SIGBUS.

    Loaders of other systems check this themselves. The file's size is compared with its segments; unlike a digest from
    build time, that also holds for libraries that tools such as auditwheel have edited.
    """
    with path.open("rb") as file:
        head = file.read(64)
        if head[:6] != b"\x7fELF\x02\x01":  # 64 bits, little-endian
            return
        try:
            segments, _, _, _, entry, count = struct.unpack_from("<QQIHHH", head, 32)
            file.seek(segments)
            table = file.read(entry * count)
            # type and flags; the segment's offset in the file; two addresses; its size in the file
            ends = [sum(struct.unpack_from("<8xQ16xQ", table, entry * i)) for i in range(count)]
        except struct.error:
            ends = [2**64]
    if max(ends, default=0) > path.stat().st_size:
        raise EngineError(f"{path} is truncated; install heedful again, or run `make engine`")
