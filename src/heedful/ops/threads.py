"""How many CPU threads compute, known and set before torch is there as well as after."""

import os
import sys


def threads() -> int:
    """As many as torch has, or would take."""
    if torch := sys.modules.get("torch"):
        return int(torch.get_num_threads())
    given = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return int(given) if given.isdecimal() and int(given) else _cores()


def set_threads(count: int) -> None:
    """So many for all that computes in this process from now on."""
    os.environ["OMP_NUM_THREADS"] = str(count)  # which torch reads when it is imported
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(count)


def _cores() -> int:
    """Those that this process may use; not every system can say so."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
