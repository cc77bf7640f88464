"""CPU features, and a workaround for virtual machines that advertise AMX without describing its tiles."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from pathlib import Path

AMX_FLAG = "amx_tile"  # in /proc/cpuinfo
WITHOUT_AMX = ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
# push rbx; mov eax, 0x1D; xor ecx, ecx; cpuid; pop rbx; ret
CPUID_LEAF_1D = bytes.fromhex("53 b81d000000 31c9 0fa2 5b c3")


def disable_undescribed_amx() -> None:
    """Disable AMX in oneDNN, torch's GEMM library, if the CPU lists AMX but does not describe its tiles.

    Some VMs advertise AMX without exposing its tile configuration, and PyTorch then dies with SIGILL. Call this before
    the first matrix product. A value of ONEDNN_MAX_CPU_ISA that the user has set is not changed.
    """
    if not amx_is_described():
        os.environ.setdefault(*WITHOUT_AMX)


@cache
def amx_is_described() -> bool:
    """Whether a CPU that lists AMX also describes its tile palettes; True for a CPU without AMX."""
    if AMX_FLAG not in cpu_flags():
        return True
    with suppress(OSError, ValueError):  # some systems forbid pages that are writable and executable
        return _count_palettes() > 0
    return True


@cache
def cpu_flags() -> frozenset[str]:
    """The CPU's feature flags in /proc/cpuinfo; empty on systems other than Linux."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith(("flags", "Features")):
                return frozenset(line.partition(":")[2].split())
    return frozenset()


def _count_palettes() -> int:
    """The highest tile palette: EAX of CPUID leaf 0x1D. Python has no CPUID, so this runs machine code from a page."""
    import ctypes
    import mmap
    import platform

    if platform.machine() not in ("x86_64", "AMD64"):
        raise OSError("CPUID needs an x86-64 CPU")
    with mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) as page:
        page.write(CPUID_LEAF_1D)
        start = ctypes.c_char.from_buffer(page)
        palettes = int(ctypes.CFUNCTYPE(ctypes.c_uint32)(ctypes.addressof(start))())
        del start  # mmap cannot close a page while a pointer into it exists
    return palettes
