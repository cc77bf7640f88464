"""What an operator reads: one JSON object a line, without texts, keys or addresses of what was asked for."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any, TextIO

from pydantic_core import to_json

DEEP = 8  # frames of a trace
LATE = 0.1  # seconds that a line about nothing special may wait for others: writing it takes longer than making it
out: TextIO | None = None  # where lines go; nobody reads them before `begin`
flushing: asyncio.TimerHandle | None = None


def begin() -> None:
    """Write the log to standard error from now on, with what our libraries have to say."""
    global out  # noqa: PLW0603
    out = open(sys.stderr.fileno(), "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    for name in ("uvicorn", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [Libraries(logging.WARNING)], False


def say(event: str, level: str = "info", error: BaseException | None = None, **fields: Any) -> None:
    """A line of the log."""
    if out is None:
        return
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    line = {"time": now, "level": level, "event": event, **fields}
    if error is not None:
        line["trace"] = trace(error)
    with contextlib.suppress(OSError, ValueError):  # nobody can be told that the log cannot be written
        out.write(to_json(line, fallback=str).decode() + "\n")
        if level != "info" or not _flushed_later():
            flush()


def _flushed_later() -> bool:
    """Whether somebody will: a loop that runs."""
    global flushing  # noqa: PLW0603
    if flushing is None:
        try:
            flushing = asyncio.get_running_loop().call_later(LATE, flush)
        except RuntimeError:
            return False
    return True


def flush() -> None:
    """Let out what was said."""
    global flushing  # noqa: PLW0603
    if flushing is not None:
        flushing.cancel()
        flushing = None
    if out is not None:
        with contextlib.suppress(OSError, ValueError):
            out.flush()


def trace(error: BaseException) -> str:
    """Where an error comes from and of what kind it is; not its message, which may quote the text of a user."""
    frames = traceback.extract_tb(error.__traceback__)[-DEEP:]
    return " < ".join([type(error).__name__, *(f"{frame.filename}:{frame.lineno}" for frame in reversed(frames))])


class Libraries(logging.Handler):
    """What others log, as lines of ours."""

    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage(), record.levelname.lower(), record.exc_info[1] if record.exc_info else None)
