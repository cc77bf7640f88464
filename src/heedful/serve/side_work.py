"""What takes long and is seldom asked for, beside the searches of a model: alignments, attention, looks inside, HTML.

One thread computes it. Each request is a generator that yields after every small piece of its work, and the requests
take turns (round robin), so that a large one does not keep the others waiting.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from heedful.errors import SettingError
from heedful.serve.logs import trace
from heedful.serve.messages import Event

Steps = Generator[None, None, Any]  # returns what the request asked for


class Turn(NamedTuple):
    """A request, and the rest of its work."""

    task: int
    steps: Steps


class SideWork:
    """Requests in a queue; `wanted` says whether a task still waits for its answer, `end` gives it the answer."""

    def __init__(self, wanted: Callable[[int], bool], end: Callable[[Event], None]) -> None:
        self.wanted, self.end = wanted, end
        self.turns: deque[Turn] = deque()
        self.waiting = threading.Semaphore(0)
        self.thread = threading.Thread(target=self._run, name="side work", daemon=True)
        self.closed = False

    def add(self, task: int, steps: Steps) -> None:
        self.turns.append(Turn(task, steps))
        self.waiting.release()
        if self.thread.ident is None:
            self.thread.start()

    def close(self) -> None:
        """Stop after the current step."""
        self.closed = True
        self.waiting.release()

    def _run(self) -> None:
        while self.waiting.acquire() and not self.closed:
            turn = self.turns.popleft()
            if not self.wanted(turn.task):
                turn.steps.close()
            elif (event := self._step(turn)) is not None:
                self.end(event)
            else:
                self.turns.append(turn)
                self.waiting.release()

    def _step(self, turn: Turn) -> Event | None:
        """Compute until the next yield; the answer if that was the last piece."""
        try:
            next(turn.steps)
        except StopIteration as done:
            return Event(turn.task, "done", done.value)
        except SettingError as error:
            return Event(turn.task, "error", str(error))
        except Exception as error:
            return Event(turn.task, "failed", trace(error))
        return None
