"""Input and output of the commands: files or pipes, UTF-8, lines that end only at a line feed."""

from __future__ import annotations

import os
import select
import signal
import stat
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from heedful.errors import FolderError, SettingError
from heedful.storage.atomic import check_output, remedy

DASH = Path("-")
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
            abandon(sys.stdout)
        name = "standard output" if self.path == DASH else self.path
        return FolderError(
            f"{name} could not be written to after {self.lines:,} lines: {error.strerror}; {remedy(self.path, error)}."
        )


def abandon(stream: TextIO) -> None:
    """Point standard output or error at /dev/null, so that Python does not retry a failed write at exit (code 120)."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def flush_stderr() -> None:
    """Write what is left on standard error, unless its reader has closed it (`2>&1 | head`)."""
    try:
        if sys.stderr is not None:  # None: closed by the calling process
            sys.stderr.flush()
    except OSError:
        abandon(sys.stderr)


def _same_file(one: Path, other: Path) -> bool:
    try:
        read, written = os.fstat(0) if one == DASH else one.stat(), other.stat()
    except OSError:
        return False
    return stat.S_ISREG(written.st_mode) and os.path.samestat(read, written)
