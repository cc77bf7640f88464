"""Side work of a model: alignments, attention, times of words, the explain page, HTML.

One thread beside the searches computes it. Each request is a generator that yields after every small step, and the
requests take turns (round robin), so that a large one does not delay the others.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from heedful.packages import explain_missing
from heedful.serve.messages import Event, error_event

Steps = Generator[None, None, Any]  # returns the result of the request


class SideTask(NamedTuple):
    """A request and its remaining steps."""

    task: int
    steps: Steps


class SideWork:
    """A queue of requests; `is_wanted` tells whether a task is not canceled, `finish` receives its final event."""

    def __init__(self, is_wanted: Callable[[int], bool], finish: Callable[[Event], None]) -> None:
        self.is_wanted, self.finish = is_wanted, finish
        self.queue: deque[SideTask] = deque()
        self.available = threading.Semaphore(0)
        self.thread = threading.Thread(target=self._run, name="side work", daemon=True)
        self.closed = False

    def add(self, task: int, steps: Steps) -> None:
        self.queue.append(SideTask(task, steps))
        self.available.release()
        if self.thread.ident is None:
            self.thread.start()

    def close(self) -> None:
        """Stop after the current step."""
        self.closed = True
        self.available.release()

    def _run(self) -> None:
        while self.available.acquire() and not self.closed:
            side_task = self.queue.popleft()
            if not self.is_wanted(side_task.task):
                side_task.steps.close()
            elif (event := self._step(side_task)) is None:
                self.queue.append(side_task)
                self.available.release()
            elif not self.closed:  # the pipe to the server may be closed as well
                self.finish(event)

    def _step(self, side_task: SideTask) -> Event | None:
        """Compute until the next yield; returns the final event after the last step."""
        task, steps = side_task
        try:
            with explain_missing("this request"):
                next(steps)
        except StopIteration as done:
            return Event(task, "done", done.value)
        except Exception as error:
            return error_event(task, error)
        return None
