"""What commands read and write: files or pipes, UTF-8, lines that end at a line feed and nowhere else."""

from __future__ import annotations

import os
import re
import select
import signal
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from heedful.errors import FolderError, SettingError
from heedful.storage.atomic import check_output, remedy

if TYPE_CHECKING:
    from heedful.inference.translator import Translator

DASH = Path("-")
Device = Annotated[str, typer.Option(help="cpu, or cuda for a GPU.")]
_interrupted = threading.Event()  # Ctrl-C has come


def input_lines(path: Path) -> Iterator[str]:
    """The lines of a file, plain or .gz, or of standard input."""
    return arriving_lines(path)[0]


def arriving_lines(path: Path) -> tuple[Iterator[str], Callable[[], bool]]:
    """The same, and whether the next one can be had without waiting for it."""
    from heedful.formats.line_files import decode_lines, read_lines

    if path != DASH:
        return read_lines(path), lambda: True
    given = _StandardInput()
    return decode_lines(given, "standard input"), given.ready


class _StandardInput:
    """Its lines, until its end or until Ctrl-C: a worker that waits for a line would hold up the end of the program."""

    def __init__(self) -> None:
        self.lines: deque[bytes] = deque()
        self.started: list[bytes] = []  # a line whose end is yet to come
        self.ended = False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        while not self.ready(0.1):
            pass
        if _interrupted.is_set() or not self.lines:
            raise StopIteration
        return self.lines.popleft()

    def ready(self, wait: float = 0.0) -> bool:
        """Whether the next line, or the end, is there or comes soon enough."""
        if not self.lines and not self.ended and select.select([0], [], [], wait)[0]:
            self._take(os.read(0, 1 << 16))
        return bool(self.lines) or self.ended or _interrupted.is_set()

    def _take(self, block: bytes) -> None:
        *lines, rest = block.split(b"\n")
        for line in lines:
            self.lines.append(b"".join((*self.started, line, b"\n")))
            self.started = []
        self.started += [rest] if rest else []
        self.ended = not block
        if self.ended and self.started:
            self.lines.append(b"".join(self.started))


def check_outputs(*paths: Path | None) -> None:
    """Refuse files that could not be written, before the work that leads to them is done."""
    for path in paths:
        if path is not None and path != DASH:
            check_output(path)


@contextmanager
def output_lines(path: Path, *read: Path) -> Iterator[Callable[[str], None]]:
    """Lines for a file, which is none of those that are `read`, or standard output: call what is given with each.

    They are UTF-8 whatever the locale says. A line leaves at once and as a whole: Ctrl-C waits until it is out, unless
    it comes a second time.
    """
    if path != DASH and any(_same_file(each, path) for each in read):
        raise SettingError(f"{path} is the file that is read; write to another one.")
    output = _Output(path)
    _interrupted.clear()
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # and not ignored
        signal.signal(signal.SIGINT, output.interrupt)
    try:
        yield output.put
        output.open()  # of no lines, too
    finally:
        signal.signal(signal.SIGINT, before)
        output.close()


class _Output:
    """A file that is opened with its first line, so that what goes wrong before that leaves an older one as it is."""

    def __init__(self, path: Path) -> None:
        self.path, self.lines = path, 0
        self.stream: TextIO | None = None
        self.writing = self.interrupted = False

    def open(self) -> TextIO:
        if self.stream is None and self.path == DASH:
            self.stream = sys.stdout
        elif self.stream is None:
            try:
                self.stream = self.path.open("w", encoding="utf-8", newline="\n")
            except OSError as error:
                raise self._problem(error) from None
        return self.stream

    def put(self, line: str) -> None:
        stream = self.stream or self.open()
        self.writing = True
        try:
            stream.write(f"{line}\n")
            stream.flush()
        except OSError as error:
            raise self._problem(error) from None
        self.writing = False
        self.lines += 1
        if self.interrupted:
            raise KeyboardInterrupt

    def interrupt(self, number: int, frame: object) -> None:
        """What Ctrl-C does."""
        _interrupted.set()
        if not self.writing or self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True

    def close(self) -> None:
        if self.stream is not None and self.stream is not sys.stdout:
            with suppress(OSError):  # every line is out, or its error was said
                self.stream.close()

    def _problem(self, error: OSError) -> Exception:
        if isinstance(error, BrokenPipeError):
            return error
        if self.path == DASH:
            abandon_stdout()
        name = "standard output" if self.path == DASH else self.path
        return FolderError(
            f"{name} could not be written to after {self.lines:,} lines: {error.strerror}; {remedy(self.path, error)}."
        )


def abandon_stdout() -> None:
    """What could not be written is not tried again when the program ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _same_file(one: Path, other: Path) -> bool:
    try:
        read, written = os.fstat(0) if one == DASH else one.stat(), other.stat()
    except OSError:
        return False
    return stat.S_ISREG(written.st_mode) and os.path.samestat(read, written)


def prepare_torch(threads: int = 0, precision: str = "float32", device: str = "cpu") -> str:
    """Check and apply what every command that computes can be told; the precision to compute in."""
    from heedful.ops.precision import choose_precision

    if precision not in ("auto", "float32", "bfloat16"):
        raise SettingError(f"--precision is {precision!r}; it must be auto, float32 or bfloat16.")
    set_threads(threads)
    check_device(device)
    return choose_precision(precision, device)


def check_device(device: str) -> None:
    """Refuse what this machine does not have."""
    if device == "cpu":
        return
    if not re.fullmatch(r"cuda(:\d+)?", device):
        raise SettingError(f"--device is {device!r}; it must be cpu, cuda, or cuda:1 for the second GPU.")
    import torch

    gpus = torch.cuda.device_count()
    if int(device.removeprefix("cuda").lstrip(":") or 0) >= gpus:
        found = f"{gpus or 'no'} GPU{'s' * (gpus > 1)}"
        raise SettingError(f"--device is {device}, and torch finds {found} here; leave it out, or set it to cpu.")


def set_threads(threads: int) -> None:
    """As many CPU threads as are asked for; 0 for all cores."""
    from heedful.ops import threads as cpu

    if threads < 0:
        raise SettingError(f"--threads is {threads}; it must be 0 (all cores) or more.")
    if threads:
        cpu.set_num_threads(threads)


def open_translator(
    models: Sequence[Path],
    threads: int = 0,
    precision: str = "auto",
    device: str = "cpu",
    workers: int = 0,
    shortlist: bool = False,
) -> Translator:
    """Load model folders for translation; what they have to say while translating goes to stderr."""
    import gc

    from heedful.inference.translator import Translator
    from heedful.interop import open_folder
    from heedful.ops.precision import PRECISION_NAMES, PRECISIONS

    if precision not in PRECISIONS:
        raise SettingError(f"--precision is {precision!r}; it must be {PRECISION_NAMES}.")
    if workers < 0:
        raise SettingError(f"--workers is {workers}; it must be 0 (one for each thread) or more.")
    set_threads(threads)
    check_device(device)
    folders = [open_folder(model) for model in models]
    translator = Translator(folders, precision, device, workers=workers, shortlist=shortlist)
    translator.notice = lambda text: print(text, file=sys.stderr)
    gc.freeze()  # what is loaded stays: to look through it again and again takes a tenth of the time
    return translator


@contextmanager
def progress(input: Path, output: Path, what: str) -> Iterator[Callable[[], None]]:
    """A bar on stderr, if that is a terminal and no line goes there: call what is given for every line that is done."""
    if not sys.stderr.isatty() or (output == DASH and sys.stdout.isatty()):
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn(what), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}")
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), redirect_stdout=False) as bar:
        task = bar.add_task(what, total=_lines(input), rate="")
        lines, shown = 0, time.monotonic()

        def show() -> None:
            bar.update(task, completed=lines)
            speed = bar.tasks[0].finished_speed or bar.tasks[0].speed
            bar.update(task, rate=f"{speed:,.0f} lines a second" if speed else "")

        def done() -> None:
            nonlocal lines, shown
            lines += 1
            if time.monotonic() - shown > 0.1:  # the bar costs more than a line
                show()
                shown = time.monotonic()

        try:
            yield done
        finally:
            show()


def _lines(path: Path) -> int | None:
    """How many lines there are to come, if that can be known."""
    if path.suffix == ".gz":
        return None
    try:
        if path != DASH:
            if not path.is_file():  # a pipe can be read once
                return None
            with path.open("rb") as file:
                return _count(iter(lambda: file.read(1 << 20), b""))
        return _count(_blocks_of_stdin()) if stat.S_ISREG(os.fstat(0).st_mode) else None
    except OSError:
        return None


def _count(blocks: Iterable[bytes]) -> int:
    lines, end = 0, b"\n"
    for block in blocks:
        lines, end = lines + block.count(b"\n"), block[-1:]
    return lines + (end != b"\n")


def _blocks_of_stdin() -> Iterator[bytes]:
    """What is left of a file that is standard input, without reading it away."""
    at = os.lseek(0, 0, os.SEEK_CUR)
    while block := os.pread(0, 1 << 20, at):
        at += len(block)
        yield block
