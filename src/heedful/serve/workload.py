"""The tasks of a model process: each becomes requests of one scheduler, and their results become its events.

The requests of all tasks share the scheduler (continuous batching). This module knows neither HTTP nor the pipe.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sized
from dataclasses import dataclass
from typing import Any, NamedTuple

from heedful.inference.scheduler import Backend, QueuedRequest, RequestResult, Scheduler
from heedful.serve.messages import Counts, Event, WorkerTask, error_event

PACE = 0.02  # seconds by which each request of a task gives precedence to younger tasks


class Job(ABC):
    """The requests of one task, and what is computed of them so far."""

    requests: list[Any]
    tokens_in: int

    @abstractmethod
    def take(self, place: int, result: Any, counts: Counts) -> Any:
        """Take a result of the request at this place -> what the client receives at once, None if nothing."""

    @abstractmethod
    def result(self) -> Any:
        """The value of the "done" event, when all requests have finished; a generator computes it as side work."""


class RequestPlace(NamedTuple):
    """The task that a request belongs to, and its place in `Job.requests`."""

    task: int
    place: int


@dataclass
class RunningTask:
    """A task that has not finished."""

    job: Job
    unfinished: set[QueuedRequest[Any]]


class Workload(ABC):
    """A model and the tasks that it computes."""

    def __init__(self, backend: Backend[Any, Any], clock: Callable[[], float] = time.monotonic) -> None:
        self.counts = Counts()
        self.scheduler: Scheduler[Any, Any] = Scheduler(backend, clock, self._count_batch)
        self.places: dict[QueuedRequest[Any], RequestPlace] = {}
        self.tasks: dict[int, RunningTask] = {}
        self.ready: list[Event] = []

    @abstractmethod
    def job(self, payload: dict[str, Any]) -> Job:
        """The job of a task; raises a HeedfulError that says what is wrong with it."""

    @property
    def waiting(self) -> Sized:
        """Requests that have not been started."""
        return self.scheduler.waiting

    def _count_batch(self, size: int) -> None:
        self.counts.batches.append(size)

    def add(self, task: WorkerTask) -> None:
        """Queue a task, or raise a HeedfulError that says what is wrong with it."""
        job = self.job(task.payload)
        requests = self.scheduler.add(job.requests, PACE)
        self.places |= {queued: RequestPlace(task.id, place) for place, queued in enumerate(requests)}
        self.tasks[task.id] = RunningTask(job, set(requests))
        self.counts.tokens_in += job.tokens_in
        if not requests:
            self._finish(task.id)

    def cancel(self, task: int) -> None:
        """Forget a task, whether it waits or runs."""
        if (running := self.tasks.pop(task, None)) is not None:
            self.scheduler.cancel(running.unfinished)
            for queued in running.unfinished:
                del self.places[queued]

    def idle(self) -> bool:
        return self.scheduler.idle() and not self.ready

    def step(self) -> list[Event]:
        """Compute a little; nothing if there is nothing to do."""
        for result in self.scheduler.step():
            if result.queued in self.places:  # its task has not failed in this very step
                self._take(result)
        ready, self.ready = self.ready, []
        return ready

    def _take(self, result: RequestResult[Any, Any]) -> None:
        task, place = self.places[result.queued]
        running = self.tasks[task]
        try:
            delta = running.job.take(place, result.get(), self.counts)
        except Exception as error:  # of a broken model or vocabulary; other tasks continue
            self.cancel(task)
            self.ready.append(error_event(task, error))
            return
        if delta is not None:
            self.ready.append(Event(task, "delta", delta))
        if result.finished:
            del self.places[result.queued]
            running.unfinished.remove(result.queued)
            if not running.unfinished:
                self._finish(task)

    def _finish(self, task: int) -> None:
        self.ready.append(Event(task, "done", self.tasks.pop(task).job.result()))
