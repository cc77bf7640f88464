"""What goes through the pipe between the server and a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Task:
    """One request, as it comes through the pipe."""

    id: int
    asked: dict[str, Any]


@dataclass(frozen=True)
class Event:
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
