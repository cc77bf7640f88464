"""Messages between the server and a worker process: pickled lists, each preceded by its length in bytes."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from heedful.errors import DataError, SettingError
from heedful.serve.logs import trace

LENGTH = struct.Struct("!I")


class WorkerTask(NamedTuple):
    """One request to a model."""

    id: int
    payload: dict[str, Any]


class Event(NamedTuple):
    """Progress of a task: a part of its result, its result, or its error."""

    task: int
    kind: str  # "delta", "done", "error" (the request is invalid) or "failed" (an internal error)
    value: Any


def error_event(task: int, error: Exception) -> Event:
    """The event of a task that ended with an error."""
    wrong_input = isinstance(error, SettingError | DataError)
    return Event(task, "error", str(error)) if wrong_input else Event(task, "failed", trace(error))


@dataclass
class Counts:
    """Work done since the counts were last sent."""

    batches: list[int] = field(default_factory=list)  # requests in each batch
    tokens_in: int = 0
    tokens_out: int = 0


def pack_messages(messages: Sequence[Any]) -> bytes:
    """Serialize messages for the pipe."""
    data = pickle.dumps(messages, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(data)) + data


class MessageReader:
    """Parses the bytes received from the pipe; yields the messages that are complete."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.size, self.needed = 0, LENGTH.size  # bytes received, and bytes needed for the next message

    def __call__(self, data: bytes) -> Iterator[Any]:
        self.chunks.append(data)
        self.size += len(data)
        if self.size < self.needed:
            return
        data, start, self.needed = b"".join(self.chunks), 0, LENGTH.size
        while len(data) - start >= LENGTH.size:
            end = start + LENGTH.size + LENGTH.unpack_from(data, start)[0]
            if end > len(data):
                self.needed = end - start
                break
            yield from pickle.loads(data[start + LENGTH.size : end])
            start = end
        self.chunks, self.size = [data[start:]], len(data) - start
