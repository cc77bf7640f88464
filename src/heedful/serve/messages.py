"""What goes through the pipe between the server and a model: lists of messages, each with its length before it."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

LENGTH = struct.Struct("!I")


class WorkerTask(NamedTuple):
    """One request."""

    id: int
    asked: dict[str, Any]


class Event(NamedTuple):
    """What became of a task: a piece of its answer, the whole of it, or why there is none."""

    task: int
    kind: str  # "piece", "done", "error" (what the user did wrong) or "failed" (what we did)
    value: Any


@dataclass
class Counts:
    """What was done since somebody last asked."""

    batches: list[int] = field(default_factory=list)  # sentences in each search that began
    tokens_in: int = 0
    tokens_out: int = 0


def packed(messages: Sequence[Any]) -> bytes:
    """Messages as bytes for the pipe."""
    data = pickle.dumps(messages, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(data)) + data


class MessageReader:
    """Bytes as they come out of the pipe -> the messages that are complete."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.size, self.needed = 0, LENGTH.size  # bytes that are here, and those without which there is no message

    def __call__(self, data: bytes) -> Iterator[Any]:
        self.pieces.append(data)
        self.size += len(data)
        if self.size < self.needed:
            return
        data, start, self.needed = b"".join(self.pieces), 0, LENGTH.size
        while len(data) - start >= LENGTH.size:
            end = start + LENGTH.size + LENGTH.unpack_from(data, start)[0]
            if end > len(data):
                self.needed = end - start
                break
            yield from pickle.loads(data[start + LENGTH.size : end])
            start = end
        self.pieces, self.size = [data[start:]], len(data) - start
