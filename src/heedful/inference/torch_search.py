"""Searches in PyTorch as a backend of the scheduler.

A batch of PyTorch cannot take up another sentence in mid-search: its rows share one cache of equal length. So several
batches run at once, each in a lane. A new lane starts when the running ones have become small, and lanes take turns by
the time that they have had: a lone sentence does not wait for a book.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from heedful.inference.scheduler import QueuedSearch, SearchResult
from heedful.inference.torch_backend import TorchBackend
from heedful.search import Hypothesis, NextToken, Observer

LANES = 4
ROWS = 256  # hypotheses of a batch
LOOKAHEAD = 1024  # requests of a file among which those of similar length are chosen
REFILL_RATIO = 3  # a new lane starts when so many requests wait for each that still runs,
PATIENCE = 1.0  # or when one has waited for so many seconds beside a single lane
SOURCE_TOKENS = 1 << 15  # in all rows of a batch


@dataclass(eq=False)
class Lane:
    """A batch that is being searched, and the seconds of computation that it has had."""

    running: dict[int, QueuedSearch]  # by place in the batch
    cancelled: set[int]  # places that the search gives up with its next step
    steps: Iterator[list[tuple[int, list[Hypothesis]]]]
    seconds: float


class TorchSearchLanes:
    """Batches of requests with the same options and of similar length; the lane with the least time steps next."""

    def __init__(
        self,
        backend: TorchBackend,
        next_token: NextToken,
        clock: Callable[[], float] = time.monotonic,
        lanes: int = LANES,
        sampling: bool = False,
        observer: Observer | None = None,
        lookahead: int = LOOKAHEAD,
    ) -> None:
        """`sampling` and `observer` need a single lane. Its batches are searched as a whole, in one step each."""
        self.backend, self.next_token, self.clock, self.lookahead = backend, next_token, clock, lookahead
        self.max_lanes, self.sampling, self.observer = lanes, sampling, observer
        self.lanes: list[Lane] = []

    def admit(self, waiting: list[QueuedSearch]) -> list[QueuedSearch]:
        if not self._may_start_lane(waiting):
            return []
        batch = self._choose(waiting)
        seconds, cancelled = min((lane.seconds for lane in self.lanes), default=0.0), set[int]()
        self.lanes.append(Lane(dict(enumerate(batch)), cancelled, self._search(batch, cancelled), seconds))
        return batch

    def step(self) -> list[SearchResult]:
        lane, start = min(self.lanes, key=lambda lane: lane.seconds), self.clock()
        try:
            finished = next(lane.steps, [])
        except Exception as error:  # which must not end the other lanes
            self.lanes.remove(lane)
            return [SearchResult(queued, error) for queued in lane.running.values()]
        lane.seconds += self.clock() - start
        lane.cancelled.difference_update(place for place, _ in finished)
        results = [
            SearchResult(lane.running.pop(place), hypotheses) for place, hypotheses in finished if place in lane.running
        ]
        self._remove_if_empty(lane)
        return results

    def cancel(self, queued: QueuedSearch) -> None:
        lane, place = next(
            (lane, place) for lane in self.lanes for place, other in lane.running.items() if other is queued
        )
        del lane.running[place]
        lane.cancelled.add(place)
        self._remove_if_empty(lane)

    def close(self) -> None:
        self.lanes.clear()

    def _remove_if_empty(self, lane: Lane) -> None:
        if not lane.running:
            self.lanes.remove(lane)

    def _may_start_lane(self, waiting: list[QueuedSearch]) -> bool:
        if len(self.lanes) >= self.max_lanes:
            return False
        running = sum(len(lane.running) for lane in self.lanes)
        overdue = self.clock() - min(queued.since for queued in waiting) >= PATIENCE
        return len(waiting) >= REFILL_RATIO * running or (overdue and len(self.lanes) == 1)

    def _choose(self, waiting: list[QueuedSearch]) -> list[QueuedSearch]:
        """The request whose turn it is, with others of the same options and of similar length."""
        first, options = waiting[0], waiting[0].request.options
        rows = options.n_best if self.sampling else options.beam  # of each request
        size = max(1, ROWS // rows)
        same = [queued for queued in waiting if queued.request.options == options]
        choice = LOOKAHEAD if self.max_lanes == 1 else 2 * size  # others wait for theirs if several lanes share
        near = sorted(same[:choice], key=lambda queued: len(queued.request.source))
        start = max(0, min(near.index(first) - size // 2, len(near) - size))
        batch = near[start : start + size]
        most = max(1, SOURCE_TOKENS // (len(batch[-1].request.source) * rows))
        return batch if len(batch) <= most else [first, *(queued for queued in batch if queued is not first)][:most]

    def _search(self, batch: list[QueuedSearch], cancelled: set[int]) -> Iterator[list[tuple[int, list[Hypothesis]]]]:
        requests = [queued.request for queued in batch]
        if self.max_lanes > 1:
            yield from self.backend.search_steps(self.next_token, requests, cancelled)
            return
        hypotheses = self.backend.search_batch(self.next_token, requests, self.sampling, self.observer)
        if self.observer is not None:
            numbers, sources = [queued.number for queued in batch], [request.source for request in requests]
            self.observer.finish(numbers, sources, hypotheses)
        yield list(enumerate(hypotheses))
