"""Continuous batching: a request joins the running batch as soon as another finishes.

Files, the Python API and the server all search through the `Scheduler`. It keeps the queue, decides whose turn it is
and forwards cancellations; a `SearchBackend` computes: `NativeSearchPool` with the native engine, `TorchSearchLanes`
with PyTorch. Text, tasks and HTTP are unknown here.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from heedful.search import Hypothesis, SearchRequest

MAX_AHEAD = 4096  # results that may wait for that of an earlier request
FIRST_LOOKAHEAD = 256  # requests that are read before the first search
IDLE_POLL_SECONDS = 0.01

Outcome = list[Hypothesis] | Exception


@dataclass(eq=False)
class QueuedRequest:
    """A request that waits or runs; compared by identity."""

    request: SearchRequest
    number: int  # in the order of arrival
    since: float  # time of arrival
    turn: float  # requests with an earlier turn start first


Finished = list[tuple[QueuedRequest, Outcome]]


class SearchBackend(Protocol):
    """Computes searches, all of them a little further with each step; requests join and leave between steps."""

    @property
    def lookahead(self) -> int:
        """Queued requests that suffice to choose a good batch from."""

    def admit(self, waiting: list[QueuedRequest]) -> list[QueuedRequest]:
        """Start some of the waiting requests, earliest turn first -> the batch they are in; empty if none may start."""

    def step(self) -> Finished:
        """Compute a little -> the requests that finished, each with its hypotheses or the error that ended it."""

    def cancel(self, queued: QueuedRequest) -> None:
        """Forget a request that was admitted and has not finished."""

    def close(self) -> None:
        """End threads; no other method may follow."""


class Scheduler:
    """The queue in front of one backend."""

    def __init__(
        self,
        backend: SearchBackend,
        clock: Callable[[], float] = time.monotonic,
        on_batch: Callable[[int], None] = lambda size: None,
    ) -> None:
        """`on_batch` receives the size of each batch that requests have joined."""
        self.backend, self.clock, self.on_batch = backend, clock, on_batch
        self.waiting: list[QueuedRequest] = []  # earliest turn first
        self.running: set[QueuedRequest] = set()
        self.finished: Finished = []  # without a search
        self.numbers = itertools.count()

    def add(self, requests: Iterable[SearchRequest], pace: float = 0.0) -> list[QueuedRequest]:
        """Queue the requests of one client; a source without ids has no hypotheses.

        Each of them has its turn `pace` seconds after the one before, so that a client that arrives later with few
        requests does not wait for all requests of a client with many.
        """
        now = self.clock()
        added = [
            QueuedRequest(request, next(self.numbers), now, now + pace * place)
            for place, request in enumerate(requests)
        ]
        self.waiting += [queued for queued in added if queued.request.source]
        self.waiting.sort(key=lambda queued: queued.turn)
        self.finished += [(queued, []) for queued in added if not queued.request.source]
        return added

    def cancel(self, requests: Collection[QueuedRequest]) -> None:
        """Forget these requests, whether they wait or run."""
        self.waiting = [queued for queued in self.waiting if queued not in requests]
        for queued in self.running.intersection(requests):
            self.running.remove(queued)
            self.backend.cancel(queued)

    def idle(self) -> bool:
        return not (self.waiting or self.running or self.finished)

    def step(self) -> Finished:
        """Fill the batch and compute a little -> the requests that finished."""
        while self.waiting and (batch := self.backend.admit(self.waiting)):
            self.running.update(batch)
            self.waiting = [queued for queued in self.waiting if queued not in self.running]
            self.on_batch(len(batch))
        finished, self.finished = self.finished, []
        if self.running:
            finished += self.backend.step()
            self.running.difference_update(queued for queued, _ in finished)
        return finished


def search_in_order(backend: SearchBackend, requests: Iterable[SearchRequest | None]) -> Iterator[list[Hypothesis]]:
    """The hypotheses of each request, in order and as early as possible; closes the backend at the end.

    Memory is bounded: requests are read as others finish. None among them means that none is available yet.
    """
    scheduler, source = Scheduler(backend), iter(requests)
    lookahead, exhausted = min(FIRST_LOOKAHEAD, backend.lookahead), False
    unfinished: deque[QueuedRequest] = deque()  # and those whose hypotheses wait for an earlier request
    results: dict[QueuedRequest, list[Hypothesis]] = {}
    try:
        while unfinished or not exhausted:
            missing = lookahead - len(scheduler.waiting)
            if not exhausted and missing > 0 and len(results) < MAX_AHEAD:
                available, exhausted = _read_available(source, missing)
                unfinished.extend(scheduler.add(available))
                lookahead = min(2 * lookahead, backend.lookahead)
            for queued, outcome in scheduler.step():
                if isinstance(outcome, Exception):
                    raise outcome
                results[queued] = outcome
            while unfinished and unfinished[0] in results:
                yield results.pop(unfinished.popleft())
            if not (unfinished or exhausted):
                time.sleep(IDLE_POLL_SECONDS)
    finally:
        backend.close()


def _read_available(source: Iterator[SearchRequest | None], count: int) -> tuple[list[SearchRequest], bool]:
    """Up to `count` requests that are available, and whether the source is exhausted."""
    available: list[SearchRequest] = []
    for request in source:
        if request is None:
            return available, False
        available.append(request)
        if len(available) == count:
            return available, False
    return available, True
