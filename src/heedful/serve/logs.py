"""The server's log: one JSON object per line, without texts of users or API keys."""

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

TRACE_FRAMES = 8
FLUSH_SECONDS = 0.1  # info lines wait this long to be written together: a write costs more than formatting a line
MAX_WAITING_LINES = 10_000  # if standard error is blocked; further lines are dropped and counted
FINAL_FLUSH_SECONDS = 1.0  # time to write the last lines


class LogWriter:
    """Writes log lines in a thread, so that a blocked standard error does not block the server."""

    def __init__(self, out: BinaryIO) -> None:
        self.out = out
        self.lines: deque[bytes] = deque()
        self.dropped = 0
        self.available, self.urgent, self.written = threading.Event(), threading.Event(), threading.Event()
        threading.Thread(target=self._write, daemon=True).start()

    def put(self, line: bytes, urgent: bool) -> None:
        if len(self.lines) >= MAX_WAITING_LINES:
            self.dropped += 1
            return
        self.lines.append(line)
        self.available.set()
        if urgent:
            self.urgent.set()

    def flush(self) -> None:
        """Write all waiting lines, unless that takes too long."""
        for _ in range(2):  # the write in progress may not include the last lines
            self.written.clear()
            self.urgent.set()
            self.available.set()
            self.written.wait(FINAL_FLUSH_SECONDS)

    def _write(self) -> None:
        while True:
            self.available.wait()
            self.urgent.wait(FLUSH_SECONDS)
            self.available.clear()
            self.urgent.clear()
            with contextlib.suppress(OSError, ValueError):  # there is no other place to report a failed write
                while self.lines:
                    self.out.write(self.lines.popleft())
                if self.dropped:
                    dropped, self.dropped = self.dropped, 0
                    self.out.write(_line("log lines dropped", "warning", lines=dropped))
                self.out.flush()
            self.written.set()


log: LogWriter | None = None  # events before `start_logging` are discarded


def start_logging() -> None:
    """Write the log to standard error, with the warnings of uvicorn and asyncio."""
    global log  # noqa: PLW0603
    log = LogWriter(open(sys.stderr.fileno(), "wb", closefd=False))  # noqa: SIM115
    for name in ("uvicorn", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [LibraryLogHandler(logging.WARNING)], False


def log_event(event: str, level: str = "info", error: BaseException | None = None, **fields: Any) -> None:
    """Write one line to the log."""
    if log is None:
        return
    if error is not None:
        fields["trace"] = trace(error)
    log.put(_line(event, level, **fields), level != "info")


def _line(event: str, level: str, **fields: Any) -> bytes:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return to_json({"time": now, "level": level, "event": event, **fields}, fallback=str) + b"\n"


def flush() -> None:
    """Write all waiting lines."""
    if log is not None:
        log.flush()


def trace(error: BaseException) -> str:
    """Type and stack frames of an error, without its message, which may quote the text of a user.

    The message of a FolderError quotes only the model folder and is returned as it is.
    """
    if isinstance(error, FolderError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)[-TRACE_FRAMES:]
    return " < ".join([type(error).__name__, *(f"{frame.filename}:{frame.lineno}" for frame in reversed(frames))])


class LibraryLogHandler(logging.Handler):
    """Forwards log records of libraries to this log."""

    def emit(self, record: logging.LogRecord) -> None:
        log_event(record.getMessage(), record.levelname.lower(), record.exc_info[1] if record.exc_info else None)
