"""How many CPU threads compute, known and set before torch is there as well as after."""

import os
import sys
from threading import Thread


def num_threads() -> int:
    """As many as torch has, or would take."""
    if torch := sys.modules.get("torch"):
        return int(torch.get_num_threads())
    given = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return int(given) if given.isdecimal() and int(given) else _cores()


def set_num_threads(count: int) -> None:
    """So many for all that computes in this process from now on."""
    os.environ["OMP_NUM_THREADS"] = str(count)  # which torch reads when it is imported
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(count)


def compute_with_one_thread() -> None:
    """Torch computes with one thread where this is called; every other Python thread keeps its number.

    OpenMP holds the number per thread. Torch also keeps the last one that was set, for threads that begin later: a
    thread that ends at once sets that one back.
    """
    import torch

    before = torch.get_num_threads()
    if before > 1:
        torch.set_num_threads(1)
        restoring = Thread(target=torch.set_num_threads, args=(before,))
        restoring.start()
        restoring.join()


def _cores() -> int:
    """Those that this process may use; not every system can say so."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
