"""Which of the engine's libraries this machine takes: the highest instruction set it has, or what HEEDFUL_ISA says."""

from __future__ import annotations

import ctypes
import os
import sys
from ctypes import byref, c_char_p
from pathlib import Path
from typing import NamedTuple

from heedful.errors import SettingError, quote
from heedful.native.capi import open_library

VARIABLE = "HEEDFUL_ISA"
OFF = "none"  # its value for torch instead of the engine
INSTRUCTION_SETS = ("portable", "avx2", "avx512", "avx512bf16", "amx")  # lowest first, as numbered in csrc/cpu.h
FOLDER = Path(__file__).parent
SUFFIX = ".dll" if sys.platform == "win32" else ".so"


class LibraryChoice(NamedTuple):
    """The engine's library, and how it was chosen."""

    library: ctypes.CDLL
    path: Path
    name: str
    available: tuple[str, ...]  # lowest first
    why_not_higher: str  # empty if there is nothing higher


def choose_library() -> LibraryChoice | None:
    """The library to compute with; None if HEEDFUL_ISA is `none`."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted and wanted not in (*INSTRUCTION_SETS, OFF):
        names = f"{', '.join(INSTRUCTION_SETS)} or {OFF}"
        raise SettingError(f"{VARIABLE} is {quote(wanted)}; it must be {names}, or not be set.")
    if wanted == OFF:
        return None
    available, why_not_higher = supported_instruction_sets()
    if wanted and wanted not in available:
        raise SettingError(
            f"{VARIABLE} is {wanted}, but here {why_not_higher}; set it to {' or '.join(available)}, or do not set it."
        )
    name = wanted or available[-1]
    path = library_path(name)
    return LibraryChoice(open_library(path), path, name, available, why_not_higher)


def supported_instruction_sets() -> tuple[tuple[str, ...], str]:
    """The instruction sets of this machine that a library was built for, lowest first; why there is none higher."""
    portable = open_library(library_path(INSTRUCTION_SETS[0]))
    reason = c_char_p()
    highest = portable.heedful_supported(byref(reason))
    why_not_higher = (reason.value or b"").decode()
    available = []
    for name in INSTRUCTION_SETS[: highest + 1]:
        if library_path(name).exists():
            available.append(name)
        else:  # compilers before GCC 11 do not know all of them
            why_not_higher = f"{library_path(name).name} was not built"
    return tuple(available), why_not_higher


def library_path(name: str) -> Path:
    return FOLDER / f"libheedful-{name}{SUFFIX}"
