"""The number of CPU threads, read and set without importing torch; torch follows if it is imported, now or later."""

import os
import sys
from threading import Thread


def num_threads() -> int:
    """The number of threads that torch uses, or would use once imported."""
    if torch := sys.modules.get("torch"):
        return int(torch.get_num_threads())
    setting = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return int(setting) if setting.isdecimal() and int(setting) else _count_cores()


def set_num_threads(count: int) -> None:
    """Set the number of threads for torch and the native engine in this process."""
    os.environ["OMP_NUM_THREADS"] = str(count)  # torch reads it on import
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(count)


def compute_with_one_thread() -> None:
    """Make torch use one thread in the calling Python thread; other Python threads keep their number.

    OpenMP stores the number per thread. Torch also stores the last number set, as the default of new threads; a
    temporary thread restores that default.
    """
    import torch

    before = torch.get_num_threads()
    if before > 1:
        torch.set_num_threads(1)
        restoring = Thread(target=torch.set_num_threads, args=(before,))
        restoring.start()
        restoring.join()


def _count_cores() -> int:
    """The cores available to this process, or all cores where the system has no CPU affinity."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
