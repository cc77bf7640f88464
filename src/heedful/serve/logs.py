"""What an operator reads: one JSON object a line, without texts, keys or addresses of what was asked for."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import traceback
from collections import deque
from datetime import UTC, datetime
from typing import Any, BinaryIO

from pydantic_core import to_json

from heedful.errors import FolderError

DEEP = 8  # frames of a trace
LATE = 0.1  # seconds that a line about nothing special may wait for others: writing it takes longer than making it
MOST = 10_000  # lines that wait if nobody takes them; what is said then is lost, and counted
END = 1.0  # seconds that the last lines have to get out


class Log:
    """Lines on their way out. A thread writes them: if nobody reads there, only it has to wait."""

    def __init__(self, out: BinaryIO) -> None:
        self.out = out
        self.lines: deque[bytes] = deque()
        self.lost = 0
        self.said, self.urgent, self.written = threading.Event(), threading.Event(), threading.Event()
        threading.Thread(target=self._write, daemon=True).start()

    def put(self, line: bytes, urgent: bool) -> None:
        if len(self.lines) >= MOST:
            self.lost += 1
            return
        self.lines.append(line)
        self.said.set()
        if urgent:
            self.urgent.set()

    def flush(self) -> None:
        """Let out what was said, unless that takes too long."""
        for _ in range(2):  # what is being written now may have been said before
            self.written.clear()
            self.urgent.set()
            self.said.set()
            self.written.wait(END)

    def _write(self) -> None:
        while True:
            self.said.wait()
            self.urgent.wait(LATE)
            self.said.clear()
            self.urgent.clear()
            with contextlib.suppress(OSError, ValueError):  # nobody can be told that the log cannot be written
                while self.lines:
                    self.out.write(self.lines.popleft())
                if self.lost:
                    lost, self.lost = self.lost, 0
                    self.out.write(_line("the log was full", "warning", lost=lost))
                self.out.flush()
            self.written.set()


log: Log | None = None  # nobody reads what is said before `begin`


def begin() -> None:
    """Write the log to standard error from now on, with what our libraries have to say."""
    global log  # noqa: PLW0603
    log = Log(open(sys.stderr.fileno(), "wb", closefd=False))  # noqa: SIM115
    for name in ("uvicorn", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [Libraries(logging.WARNING)], False


def say(event: str, level: str = "info", error: BaseException | None = None, **fields: Any) -> None:
    """A line of the log."""
    if log is None:
        return
    if error is not None:
        fields["trace"] = trace(error)
    log.put(_line(event, level, **fields), level != "info")


def _line(event: str, level: str, **fields: Any) -> bytes:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return to_json({"time": now, "level": level, "event": event, **fields}, fallback=str) + b"\n"


def flush() -> None:
    """Let out what was said."""
    if log is not None:
        log.flush()


def trace(error: BaseException) -> str:
    """Where an error comes from and of what kind it is; not its message, which may quote the text of a user.

    What is wrong with a model folder is said as it is: such a sentence quotes the folder alone.
    """
    if isinstance(error, FolderError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)[-DEEP:]
    return " < ".join([type(error).__name__, *(f"{frame.filename}:{frame.lineno}" for frame in reversed(frames))])


class Libraries(logging.Handler):
    """What others log, as lines of ours."""

    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage(), record.levelname.lower(), record.exc_info[1] if record.exc_info else None)
