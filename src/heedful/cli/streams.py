"""Input, output and shared options of the commands: files or pipes, UTF-8, lines that end only at a line feed."""

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
    from heedful.inference.term_matching import Glossary as TermGlossary
    from heedful.inference.translator import Translator

DASH = Path("-")
Beam = Annotated[int | None, typer.Option(help="Beam size: hypotheses kept at each step; 1 is greedy search.")]
LoopGuard = Annotated[
    bool | None,
    typer.Option(help="Search a line again if its output repeats itself in a row and its source does not."),
]
Threads = Annotated[int, typer.Option(help="CPU threads; 0 for all cores.")]
Precision = Annotated[str, typer.Option(help="auto (the fastest one of this machine), float32, bfloat16 or int8.")]
ModelPrecision = Annotated[str, typer.Option(help="float32, int8 (the native engine) or bfloat16 (PyTorch).")]
TorchPrecision = Annotated[str, typer.Option(help="auto, float32 or bfloat16.")]
Device = Annotated[str, typer.Option(help="cpu, or cuda for a GPU.")]
Shortlist = Annotated[
    bool,
    typer.Option(
        "--shortlist",
        help="Restrict the output layer to the model's shortlist (see `heedful shortlist`): "
        "faster with large vocabularies.",
    ),
]
Glossary = Annotated[
    Path | None,
    typer.Option(help="Terms and their translations: CSV, tab-separated (source, target, forms by |) or TBX."),
]
MAX_WARNINGS = 10  # lines that are printed
_interrupted = threading.Event()  # set by Ctrl-C


def input_lines(path: Path) -> Iterator[str]:
    """Lines of a file, plain or .gz, or of standard input."""
    return arriving_lines(path)[0]


def arriving_lines(path: Path) -> tuple[Iterator[str], Callable[[], bool]]:
    """Lines of a file or of standard input, and a function that tells whether the next line is already there."""
    from heedful.formats.line_files import decode_lines, read_lines

    if path != DASH:
        return read_lines(path), lambda: True
    stdin = _StandardInput()
    return decode_lines(stdin, "standard input"), stdin.ready


class _StandardInput:
    """Lines of standard input, until its end or Ctrl-C: a thread blocked in a read would delay the program's exit."""

    def __init__(self) -> None:
        self.lines: deque[bytes] = deque()
        self.partial: list[bytes] = []  # an incomplete line
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
        """Whether the next line, or the end of input, arrives within `wait` seconds."""
        if not self.lines and not self.ended and select.select([0], [], [], wait)[0]:
            self._add_block(os.read(0, 1 << 16))
        return bool(self.lines) or self.ended or _interrupted.is_set()

    def _add_block(self, block: bytes) -> None:
        *lines, rest = block.split(b"\n")
        for line in lines:
            self.lines.append(b"".join((*self.partial, line, b"\n")))
            self.partial = []
        self.partial += [rest] if rest else []
        self.ended = not block
        if self.ended and self.partial:
            self.lines.append(b"".join(self.partial))


def check_outputs(*paths: Path | None) -> None:
    """Refuse output files that cannot be written, before any work is done."""
    for path in paths:
        if path is not None and path != DASH:
            check_output(path)


def check_inputs(output: Path, *inputs: Path) -> None:
    """Refuse an output file that is also an input."""
    if output != DASH and any(_same_file(input, output) for input in inputs):
        raise SettingError(f"{output} is both input and output; write to another file.")


@contextmanager
def output_lines(path: Path, *inputs: Path) -> Iterator[Callable[[str], None]]:
    """Yield a function that writes one line to a file or to standard output; the file must not be one of the `inputs`.

    Lines are UTF-8 whatever the locale. Each is flushed at once and is never cut: Ctrl-C takes effect after the line,
    and at once if pressed twice.
    """
    check_inputs(path, *inputs)
    output = _Output(path)
    _interrupted.clear()
    previous_handler = signal.getsignal(signal.SIGINT)
    if previous_handler is signal.default_int_handler:  # not if SIGINT is ignored
        signal.signal(signal.SIGINT, output.interrupt)
    try:
        yield output.put
        output.open()  # creates the file even without lines
    finally:
        signal.signal(signal.SIGINT, previous_handler)
        output.close()


class _Output:
    """An output file, opened with its first line: an error before that leaves an existing file unchanged."""

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
                raise self._write_error(error) from None
        return self.stream

    def put(self, line: str) -> None:
        stream = self.stream or self.open()
        self.writing = True
        try:
            stream.write(f"{line}\n")
            stream.flush()
        except OSError as error:
            raise self._write_error(error) from None
        self.writing = False
        self.lines += 1
        if self.interrupted:
            raise KeyboardInterrupt

    def interrupt(self, number: int, frame: object) -> None:
        """Signal handler for Ctrl-C."""
        _interrupted.set()
        if not self.writing or self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True

    def close(self) -> None:
        if self.stream is not None and self.stream is not sys.stdout:
            with suppress(OSError):  # every line is flushed, or its error was reported
                self.stream.close()

    def _write_error(self, error: OSError) -> Exception:
        if isinstance(error, BrokenPipeError):
            return error
        if self.path == DASH:
            abandon_stdout()
        name = "standard output" if self.path == DASH else self.path
        return FolderError(
            f"{name} could not be written to after {self.lines:,} lines: {error.strerror}; {remedy(self.path, error)}."
        )


def abandon_stdout() -> None:
    """Point standard output at /dev/null, so that Python does not retry a failed write at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _same_file(one: Path, other: Path) -> bool:
    try:
        read, written = os.fstat(0) if one == DASH else one.stat(), other.stat()
    except OSError:
        return False
    return stat.S_ISREG(written.st_mode) and os.path.samestat(read, written)


def prepare_model(threads: int = 0, precision: str = "float32", device: str = "cpu") -> str:
    """Check and apply --threads, --precision and --device of a GPT or BERT, without torch on a CPU."""
    from heedful.ops.precision import PRECISION_NAMES, PRECISIONS

    if precision not in PRECISIONS:
        raise SettingError(f"--precision is {precision!r}; it must be {PRECISION_NAMES}.")
    set_threads(threads)
    check_device(device)
    return precision if precision != "auto" else "float32" if device == "cpu" else prepare_torch(0, "auto", device)


def prepare_torch(threads: int = 0, precision: str = "float32", device: str = "cpu") -> str:
    """Check and apply --threads, --precision and --device; returns the precision to compute in."""
    from heedful.ops.precision import choose_precision

    if precision not in ("auto", "float32", "bfloat16"):
        raise SettingError(f"--precision is {precision!r}; it must be auto, float32 or bfloat16.")
    set_threads(threads)
    check_device(device)
    return choose_precision(precision, device)


def check_device(device: str) -> None:
    """Refuse a device that this machine does not have."""
    if device == "cpu":
        return
    if not re.fullmatch(r"cuda(:\d+)?", device):
        raise SettingError(f"--device is {device!r}; it must be cpu, cuda, or cuda:1 for the second GPU.")
    import torch

    gpus = torch.cuda.device_count()
    if int(device.removeprefix("cuda").lstrip(":") or 0) >= gpus:
        available = f"{gpus or 'no'} GPU{'s' * (gpus > 1)}"
        raise SettingError(f"--device is {device}, but torch finds {available} here; leave it out, or set it to cpu.")


def set_threads(threads: int) -> None:
    """Set the number of CPU threads; 0 for all cores."""
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
    """Load one model, or several as an ensemble, for translation; notices go to stderr."""
    import gc

    from heedful.inference.open_model import translator_type
    from heedful.interop import open_folder
    from heedful.ops.precision import PRECISION_NAMES, PRECISIONS

    if precision not in PRECISIONS:
        raise SettingError(f"--precision is {precision!r}; it must be {PRECISION_NAMES}.")
    if workers < 0:
        raise SettingError(f"--workers is {workers}; it must be 0 (one for each thread) or more.")
    set_threads(threads)
    check_device(device)
    folders = [open_folder(model) for model in models]
    kind = translator_type(folders[0])
    translator = kind(folders, precision, device, workers=workers, shortlist=shortlist)
    translator.notice = lambda text: print(text, file=sys.stderr)
    gc.freeze()  # the loaded objects stay: without this, garbage collection takes a tenth of the time
    return translator


def read_glossary(
    path: Path | None, source_language: str | None = None, target_language: str | None = None
) -> TermGlossary | None:
    """The glossary of a command, if one is given."""
    if path is None:
        return None
    from heedful.inference.term_matching import Glossary as TermGlossary

    return TermGlossary.read(path, source_language, target_language)


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
