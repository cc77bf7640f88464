"""What this CPU says of itself, where torch would take it at its word and fall."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
from contextlib import suppress
from functools import cache
from pathlib import Path

TILES = "amx_tile"  # Intel's products of whole tiles, as Linux calls them
WITHOUT_TILES = ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
# push rbx; mov eax, 0x1D; xor ecx, ecx; cpuid; pop rbx; ret
ASK_FOR_PALETTES = bytes.fromhex("53 b81d000000 31c9 0fa2 5b c3")


def disable_undescribed_amx() -> None:
    """Tell oneDNN, which computes torch's products, to leave tiles alone that the CPU lists and does not describe.

    On some virtual machines that is so, and it would end the process with an illegal instruction. To be called before
    the first product; what the user has set stays.
    """
    if not amx_is_described():
        os.environ.setdefault(*WITHOUT_TILES)


@cache
def amx_is_described() -> bool:
    """Whether a CPU that lists tiles also says what they look like; True if it lists none."""
    if TILES not in cpu_flags():
        return True
    with suppress(OSError, ValueError):  # not every system lets a program run what it has written
        return _palettes() > 0
    return True


@cache
def cpu_flags() -> frozenset[str]:
    """The instructions that this CPU has, as Linux lists them; nothing elsewhere."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith(("flags", "Features")):
                return frozenset(line.partition(":")[2].split())
    return frozenset()


def _palettes() -> int:
    """How many ways there are to lay out tiles: register EAX of leaf 0x1D of CPUID, an instruction Python has not."""
    if platform.machine() not in ("x86_64", "AMD64"):
        raise OSError("another kind of CPU")
    with mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) as page:
        page.write(ASK_FOR_PALETTES)
        start = ctypes.c_char.from_buffer(page)
        found = int(ctypes.CFUNCTYPE(ctypes.c_uint32)(ctypes.addressof(start))())
        del start  # a page that is pointed to cannot be given back
    return found
