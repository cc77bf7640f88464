"""Continuous batching: a request joins the running batch as soon as another finishes.

Files, the Python API and the server compute everything through the `Scheduler`. It keeps the queue, decides whose turn
it is and forwards cancellations; a `Backend` computes: `NativeSearchPool` (beam search in the native engine),
`TorchSearchLanes` (searches in PyTorch), `GenerationBatch` (the samples of a GPT) or `OneByOne`. Text, tasks and HTTP
are unknown here.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from heedful.search import Hypothesis, SearchRequest

MAX_AHEAD = 4096  # results that may wait for that of an earlier request
FIRST_LOOKAHEAD = 256  # requests that are read before the first search
IDLE_POLL_SECONDS = 0.01

Request = TypeVar("Request")
Result = TypeVar("Result")


@dataclass(eq=False)
class QueuedRequest(Generic[Request]):
    """A request that waits or runs; compared by identity."""

    request: Request
    number: int  # in the order of arrival
    since: float  # time of arrival
    turn: float  # requests with an earlier turn start first


class RequestResult(NamedTuple, Generic[Request, Result]):
    """What a step computed of one request: its result, a part of it, or the error that ended it."""

    queued: QueuedRequest[Request]
    outcome: Result | Exception
    finished: bool = True  # False if later steps add to the result

    def get(self) -> Result:
        """The result; raises the error that ended the request."""
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class Backend(Protocol[Request, Result]):
    """Computes requests, all of them a little further with each step; they join and leave between steps."""

    @property
    def lookahead(self) -> int:
        """Queued requests that suffice to choose a good batch from."""

    def admit(self, waiting: list[QueuedRequest[Request]]) -> list[QueuedRequest[Request]]:
        """Start some of the waiting requests, earliest turn first -> the batch they are in; empty if none may start."""

    def step(self) -> list[RequestResult[Request, Result]]:
        """Compute a little. An error that ends only some requests is their outcome; it is not raised."""

    def cancel(self, queued: QueuedRequest[Request]) -> None:
        """Forget a request that was admitted and has not finished."""

    def close(self) -> None:
        """End threads; no other method may follow."""


class Scheduler(Generic[Request, Result]):
    """The queue in front of one backend."""

    def __init__(
        self,
        backend: Backend[Request, Result],
        clock: Callable[[], float] = time.monotonic,
        on_batch: Callable[[int], None] = lambda size: None,
    ) -> None:
        """`on_batch` receives the size of each batch that requests have joined."""
        self.backend, self.clock, self.on_batch = backend, clock, on_batch
        self.waiting: list[QueuedRequest[Request]] = []  # earliest turn first
        self.running: set[QueuedRequest[Request]] = set()
        self.numbers = itertools.count()

    def add(self, requests: Iterable[Request], pace: float = 0.0) -> list[QueuedRequest[Request]]:
        """Queue the requests of one client.

        Each of them has its turn `pace` seconds after the one before, so that a client that arrives later with few
        requests does not wait for all requests of a client with many.
        """
        now = self.clock()
        added = [
            QueuedRequest(request, next(self.numbers), now, now + pace * place)
            for place, request in enumerate(requests)
        ]
        self.waiting += added
        self.waiting.sort(key=lambda queued: queued.turn)
        return added

    def cancel(self, requests: Collection[QueuedRequest[Request]]) -> None:
        """Forget these requests, whether they wait or run."""
        self.waiting = [queued for queued in self.waiting if queued not in requests]
        for queued in self.running.intersection(requests):
            self.running.remove(queued)
            self.backend.cancel(queued)

    def idle(self) -> bool:
        return not (self.waiting or self.running)

    def step(self) -> list[RequestResult[Request, Result]]:
        """Fill the batch and compute a little; nothing if there is nothing to do."""
        while self.waiting and (batch := self.backend.admit(self.waiting)):
            self.running.update(batch)
            self.waiting = [queued for queued in self.waiting if queued not in self.running]
            self.on_batch(len(batch))
        results = self.backend.step() if self.running else []
        self.running.difference_update(result.queued for result in results if result.finished)
        return results


class OneByOne(Generic[Request, Result]):
    """The backend of requests that take one short step each, such as the masks of a text."""

    lookahead = 1

    def __init__(self, compute: Callable[[Request], Result]) -> None:
        self.compute = compute
        self.current: QueuedRequest[Request] | None = None

    def admit(self, waiting: list[QueuedRequest[Request]]) -> list[QueuedRequest[Request]]:
        if self.current is not None:
            return []
        self.current = waiting[0]
        return [self.current]

    def step(self) -> list[RequestResult[Request, Result]]:
        assert self.current is not None
        queued, self.current = self.current, None
        try:
            return [RequestResult(queued, self.compute(queued.request))]
        except Exception as error:
            return [RequestResult(queued, error)]

    def cancel(self, queued: QueuedRequest[Request]) -> None:
        self.current = None

    def close(self) -> None: ...


QueuedSearch = QueuedRequest[SearchRequest]
SearchResult = RequestResult[SearchRequest, list[Hypothesis]]
SearchBackend = Backend[SearchRequest, list[Hypothesis]]


def search_in_order(backend: SearchBackend, requests: Iterable[SearchRequest | None]) -> Iterator[list[Hypothesis]]:
    """The hypotheses of each request, in order and as early as possible; closes the backend at the end.

    Memory is bounded: requests are read as others finish. None among them means that none is available yet. A request
    without source ids has no hypotheses.
    """
    scheduler, source = Scheduler(backend), iter(requests)
    lookahead, exhausted = min(FIRST_LOOKAHEAD, backend.lookahead), False
    unfinished: deque[QueuedSearch] = deque()  # and those whose hypotheses wait for an earlier request
    results: dict[QueuedSearch, list[Hypothesis]] = {}
    try:
        while unfinished or not exhausted:
            missing = lookahead - len(scheduler.waiting)
            if not exhausted and missing > 0 and len(results) < MAX_AHEAD:
                available, exhausted = _read_available(source, missing)
                added = scheduler.add(available)
                empty = {queued: list[Hypothesis]() for queued in added if not queued.request.source}
                scheduler.cancel(empty)
                results |= empty
                unfinished.extend(added)
                lookahead = min(2 * lookahead, backend.lookahead)
            results |= {result.queued: result.get() for result in scheduler.step()}
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
