"""What commands read and write: files or pipes, UTF-8, lines that end at a line feed and nowhere else."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from heedful.translate import Translator

DASH = Path("-")


def input_lines(path: Path) -> Iterator[str]:
    """The lines of a file, plain or .gz, or of standard input."""
    from heedful.data.readers import decode_lines, read_lines

    return decode_lines(sys.stdin.buffer, "standard input") if path == DASH else read_lines(path)


@contextmanager
def output_stream(path: Path) -> Iterator[TextIO]:
    """A file or standard output, in UTF-8 whatever the locale says."""
    from heedful.disk import explained

    if path == DASH:
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
        yield sys.stdout
        sys.stdout.flush()
        return
    with explained(path), path.open("w", encoding="utf-8", newline="\n") as file:
        yield file


def prepare_torch(threads: int = 0, precision: str = "float32") -> str:
    """Check and apply what every command that computes can be told; the precision to compute in."""
    import torch

    from heedful.errors import SettingError
    from heedful.ops.precision import choose

    if precision not in ("auto", "float32", "bfloat16"):
        raise SettingError(f"--precision is {precision!r}; it must be auto, float32 or bfloat16.")
    set_threads(threads)
    return choose(precision, torch.device("cpu"))


def set_threads(threads: int) -> None:
    """As many CPU threads as are asked for; 0 for all cores."""
    import torch

    from heedful.errors import SettingError

    if threads < 0:
        raise SettingError(f"--threads is {threads}; it must be 0 (all cores) or more.")
    if threads:
        torch.set_num_threads(threads)


def open_translator(models: Sequence[Path], threads: int = 0, precision: str = "auto", workers: int = 0) -> Translator:
    """Load model folders for translation; what they have to say while translating goes to stderr."""
    import gc

    from heedful.errors import SettingError
    from heedful.interop import open_folder
    from heedful.ops.precision import PRECISIONS
    from heedful.translate import Translator

    if precision not in PRECISIONS:
        raise SettingError(f"--precision is {precision!r}; it must be {', '.join(PRECISIONS)}.")
    if workers < 0:
        raise SettingError(f"--workers is {workers}; it must be 0 (one for each thread) or more.")
    set_threads(threads)
    translator = Translator([open_folder(model) for model in models], precision, workers=workers)
    translator.notice = lambda text: print(text, file=sys.stderr)
    gc.freeze()  # what is loaded stays: to look through it again and again takes a tenth of the time
    return translator


@contextmanager
def progress(path: Path, what: str) -> Iterator[Callable[[], None]]:
    """A bar on stderr, if that is a terminal: call what is given for every line that is done."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn(what), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}")
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=_lines(path), rate="")

        def done() -> None:
            bar.advance(task)
            speed = bar.tasks[0].finished_speed or bar.tasks[0].speed
            bar.update(task, rate=f"{speed:,.0f} lines a second" if speed else "")

        yield done


def _lines(path: Path) -> int | None:
    """How many lines there are to come, if that can be known."""
    if path.suffix == ".gz":
        return None
    try:
        if path != DASH:
            with path.open("rb") as file:
                return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
        if not stat.S_ISREG(os.fstat(0).st_mode):
            return None
        return sum(block.count(b"\n") for block in _blocks_of_stdin())
    except OSError:
        return None


def _blocks_of_stdin() -> Iterator[bytes]:
    """What is left of a file that is standard input, without reading it away."""
    at = os.lseek(0, 0, os.SEEK_CUR)
    while block := os.pread(0, 1 << 20, at):
        at += len(block)
        yield block
