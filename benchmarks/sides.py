"""What benchmarks of inference speed share: sides that take turns, each in a process of its own, and their ratios.

A process of its own keeps the idle threads of one library from disturbing another; it stays alive, so models are loaded
and warmed up once. All sides use the threads of OMP_NUM_THREADS, or one per core.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from heedful.native.isa import choose_library

THREADS = int(os.environ.setdefault("OMP_NUM_THREADS", str(len(os.sched_getaffinity(0)))))
PAUSE_SECONDS = 0.3  # between two sides: OpenMP threads spin for up to 0.2 s before they sleep

Work = Callable[[], Any]
_work: list[Work] = []  # what this process does, once it is loaded


@dataclass(frozen=True)
class Measured:
    """One run of one side."""

    wall: float  # seconds
    cpu: float  # seconds of all threads, which other programs on the machine change less
    output: Any


class Side:
    """A function `load(*arguments) -> work` in its own process; `run` calls and times the work."""

    def __init__(self, name: str, load: Callable[..., Work], *arguments: Any) -> None:
        self.name = name
        self.process = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        self.process.submit(_load, load, arguments).result()

    def run(self) -> Measured:
        time.sleep(PAUSE_SECONDS)
        return self.process.submit(_run).result()


def _load(load: Callable[..., Work], arguments: Sequence[Any]) -> None:
    _work.append(load(*arguments))
    _work[0]()  # warm-up


def _run() -> Measured:
    wall, cpu = time.perf_counter(), time.process_time()
    output = _work[0]()
    return Measured(time.perf_counter() - wall, time.process_time() - cpu, output)


def open_sides(loaders: Mapping[str, Sequence[Any]]) -> list[Side]:
    """Sides by name, each with its `load` function and arguments; a missing peer is named and left out."""
    sides = []
    for name, (load, *arguments) in loaders.items():
        try:
            sides.append(Side(name, load, *arguments))
        except ImportError as error:
            print(f"{name} is missing: {error}", flush=True)
    return sides


def alternate(sides: Sequence[Side], rounds: int) -> dict[str, list[Measured]]:
    """Each side once per round -> its runs."""
    runs: dict[str, list[Measured]] = {side.name: [] for side in sides}
    for _ in range(rounds):
        for side in sides:
            runs[side.name].append(side.run())
    return runs


def best_setting(settings: Sequence[Any], work: Callable[[Any], Any]) -> Any:
    """The setting with which the work takes least time; the first call is a warm-up."""
    work(settings[0])
    times = {}
    for setting in settings:
        began = time.perf_counter()
        work(setting)
        times[setting] = time.perf_counter() - began
    chosen = min(times, key=lambda setting: times[setting])
    print(f"  chose {chosen} of {', '.join(f'{setting}: {seconds:.2f} s' for setting, seconds in times.items())}",
          file=sys.stderr, flush=True)  # fmt: skip
    return chosen


def machine() -> str:
    """Threads, and the instruction set of our engine."""
    choice = choose_library()
    return f"{THREADS} threads, engine {choice.name if choice else 'off'}"


def print_rates(runs: Mapping[str, Sequence[Measured]], count: int, unit: str) -> None:
    """`count` units of work were done in each run."""
    for name, of_side in runs.items():
        wall, cpu = (statistics.median(count / getattr(run, kind) for run in of_side) for kind in ("wall", "cpu"))
        print(f"{name:30} {wall:10,.1f} {unit} a second, {cpu:10,.1f} a CPU second")


def print_ratios(runs: Mapping[str, Sequence[Measured]], ours: Sequence[str]) -> None:
    """Each of our sides beside each peer, and beside the best peer of each round."""
    peers = [name for name in runs if name not in ours]
    for name in ours:
        for peer in peers:
            print_ratio(f"{name} / {peer}", list(zip(runs[peer], runs[name], strict=True)))
        if peers:
            fastest = min(peers, key=lambda peer: statistics.median(run.wall for run in runs[peer]))
            print_ratio(f"{name} / the fastest peer, {fastest}", list(zip(runs[fastest], runs[name], strict=True)))


def print_ratio(name: str, pairs: Sequence[tuple[Measured, Measured]]) -> None:
    wall, cpu = ([getattr(peer, kind) / getattr(own, kind) for peer, own in pairs] for kind in ("wall", "cpu"))
    print(f"{name}: {statistics.median(wall):.2f} ({min(wall):.2f} to {max(wall):.2f}) by wall time, "
          f"{statistics.median(cpu):.2f} ({min(cpu):.2f} to {max(cpu):.2f}) by CPU time")  # fmt: skip


# ---- limits


def gemm_seconds(rows: int, shapes: Sequence[tuple[int, int, int]], int8: bool) -> float:
    """Seconds that PyTorch takes for the products of `rows` rows with (in, out) matrices, `count` of each, alone."""
    import torch

    torch.set_num_threads(THREADS)
    products = []
    for inner, outer, count in shapes:
        x, weights = torch.randn(rows, inner), [torch.randn(outer, inner).T for _ in range(count)]
        if int8:
            x, weights = x.to(torch.int8), [weight.to(torch.int8) for weight in weights]
        products += [(torch._int_mm if int8 else torch.mm, x, weight) for weight in weights]

    def run() -> float:
        began = time.perf_counter()
        for product, x, weight in products:
            product(x, weight)
        return time.perf_counter() - began

    return min(run() for _ in range(5))


def read_seconds(size: int) -> float:
    """The time to read so many bytes from memory, by PyTorch's sum."""
    import torch

    torch.set_num_threads(THREADS)
    values = torch.ones(size // 4)

    def run() -> float:
        began = time.perf_counter()
        values.sum()
        return time.perf_counter() - began

    return min(run() for _ in range(5))


def print_share(name: str, runs: Sequence[Measured], limit: float, what: str) -> None:
    """How much of the time of a side is the limit's."""
    shares = [limit / run.wall for run in runs]
    spread = f"({min(shares):.2f} to {max(shares):.2f})"
    print(f"{name}: {what} takes {limit:.3f} s, {statistics.median(shares):.2f} {spread} of the wall time")
