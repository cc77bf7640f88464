"""Choice of the engine's library: the highest instruction set of this CPU, or the one that HEEDFUL_ISA names."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from ctypes import byref, c_char_p
from pathlib import Path
from typing import NamedTuple

from heedful.errors import SettingError, quote
from heedful.native.capi import open_library

VARIABLE = "HEEDFUL_ISA"
OFF = "none"  # value of HEEDFUL_ISA that disables the engine
X86_64 = ("portable", "avx2", "avx512", "avx512bf16", "amx")  # lowest first, as numbered in csrc/cpu.h
AARCH64 = ("portable", "dotprod")  # NEON is part of the architecture: the portable library uses it
INSTRUCTION_SETS = AARCH64 if platform.machine() in ("aarch64", "arm64", "ARM64") else X86_64
FOLDER = Path(__file__).parent
SUFFIX = ".dll" if sys.platform == "win32" else ".so"


class LibraryChoice(NamedTuple):
    """The library that was loaded, and the instruction sets it was chosen from."""

    library: ctypes.CDLL
    path: Path
    name: str
    available: tuple[str, ...]  # lowest first
    why_not_higher: str  # empty if `name` is the highest of all


def choose_library() -> LibraryChoice | None:
    """Load the library for this CPU; None if HEEDFUL_ISA is `none`."""
    requested = os.environ.get(VARIABLE, "")
    if requested and requested not in (*INSTRUCTION_SETS, OFF):
        names = f"{', '.join(INSTRUCTION_SETS)} or {OFF}"
        raise SettingError(f"{VARIABLE} is {quote(requested)}; it must be {names}, or not be set.")
    if requested == OFF:
        return None
    available, why_not_higher = supported_instruction_sets()
    if requested and requested not in available:
        raise SettingError(
            f"{VARIABLE} is {requested}, but here {why_not_higher}; set it to {' or '.join(available)}, or unset it."
        )
    name = requested or available[-1]
    path = library_path(name)
    return LibraryChoice(open_library(path), path, name, available, why_not_higher)


def supported_instruction_sets() -> tuple[tuple[str, ...], str]:
    """The instruction sets of this CPU that have a library, lowest first, and why there is no higher one."""
    portable = open_library(library_path(INSTRUCTION_SETS[0]))
    reason = c_char_p()
    highest = portable.heedful_supported_isa(byref(reason))
    why_not_higher = (reason.value or b"").decode()
    available = []
    for name in INSTRUCTION_SETS[: highest + 1]:
        if library_path(name).exists():
            available.append(name)
        else:  # compilers before GCC 11 lack some of them
            why_not_higher = f"{library_path(name).name} was not built"
    return tuple(available), why_not_higher


def library_path(name: str) -> Path:
    return FOLDER / f"libheedful-{name}{SUFFIX}"
