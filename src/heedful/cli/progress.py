"""What a command prints while it computes lines, and after it: a progress bar and warnings, on stderr."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from heedful.cli.streams import DASH

MAX_WARNINGS = 10  # lines that are printed


@contextmanager
def warning_summary() -> Iterator[Callable[[int, Sequence[str]], None]]:
    """Yield a function to call with the number and the warnings of each line; prints the first ones at the end."""
    warned: list[tuple[int, str]] = []

    def warn(number: int, warnings: Sequence[str]) -> None:
        warned.extend((number, warning) for warning in warnings)

    yield warn
    for number, warning in warned[:MAX_WARNINGS]:
        print(f"line {number}: {warning}.", file=sys.stderr)
    if len(warned) > MAX_WARNINGS:
        print(f"and {len(warned) - MAX_WARNINGS:,} more warnings of this kind.", file=sys.stderr)


@contextmanager
def progress(input: Path, output: Path, what: str, total: int | None = None) -> Iterator[Callable[[], None]]:
    """Yield a function to call after each line; shows a progress bar if stderr is a terminal without output lines."""
    if not sys.stderr.isatty() or (output == DASH and sys.stdout.isatty()):
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn(what), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}")
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), redirect_stdout=False) as bar:
        task = bar.add_task(what, total=total or _count_lines(input), rate="")
        lines, shown = 0, time.monotonic()

        def show() -> None:
            bar.update(task, completed=lines)
            speed = bar.tasks[0].finished_speed or bar.tasks[0].speed
            bar.update(task, rate=f"{speed:,.0f} lines/s" if speed else "")

        def done() -> None:
            nonlocal lines, shown
            lines += 1
            if time.monotonic() - shown > 0.1:  # drawing takes longer than translating a line
                show()
                shown = time.monotonic()

        try:
            yield done
        finally:
            show()


def _count_lines(path: Path) -> int | None:
    """The number of input lines, if it can be known without consuming the input."""
    if path.suffix == ".gz":
        return None
    try:
        if path != DASH:
            if not path.is_file():  # a pipe can be read once
                return None
            with path.open("rb") as file:
                return _count_in_blocks(iter(lambda: file.read(1 << 20), b""))
        return _count_in_blocks(_stdin_blocks()) if stat.S_ISREG(os.fstat(0).st_mode) else None
    except OSError:
        return None


def _count_in_blocks(blocks: Iterable[bytes]) -> int:
    lines, end = 0, b"\n"
    for block in blocks:
        lines, end = lines + block.count(b"\n"), block[-1:]
    return lines + (end != b"\n")


def _stdin_blocks() -> Iterator[bytes]:
    """The rest of a regular file on standard input, without moving its offset."""
    offset = os.lseek(0, 0, os.SEEK_CUR)
    while block := os.pread(0, 1 << 20, offset):
        offset += len(block)
        yield block
