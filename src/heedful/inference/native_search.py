"""Searches of the native engine as a backend of the scheduler."""

from __future__ import annotations

import threading
import weakref

from heedful.inference.scheduler import QueuedSearch, SearchResult
from heedful.native import Engine, EngineSearch, rows_per_step
from heedful.search import Hypothesis

LOOKAHEAD = 64
RESULT_POLL_SECONDS = 0.002  # for which the caller waits for results before it can do other things
STEPS_PER_CALL = 4  # decoding steps of one call into the engine, at most: Ctrl-C is handled between calls
RESULTS_PER_CALL = 16  # finished requests after which a call returns earlier

Outcomes = dict[QueuedSearch, list[Hypothesis] | Exception]


class NativeSearchPool:
    """Several searches of one engine, each in its own thread, used as one.

    A request goes to the search with the fewest rows and joins before its next step. A single search has no thread of
    its own: it computes when the caller steps.
    """

    def __init__(
        self,
        engine: Engine,
        searches: int = 1,
        threads: int = 1,
        batched_calls: bool = False,
        lookahead: int = LOOKAHEAD,
    ) -> None:
        """`threads` compute each search. With `batched_calls` the engine takes several decoding steps in one call:
        less overhead, but requests join and leave only between calls.
        """
        self.shared, self.lookahead = _SharedState(), lookahead
        calls = (STEPS_PER_CALL, RESULTS_PER_CALL) if batched_calls else (1, 1)
        self.searches = [_PooledSearch(EngineSearch(engine, threads), self.shared, calls) for _ in range(searches)]
        self.max_rows = 2 * rows_per_step(engine) * searches  # the engine computes half of them and queues the rest
        self.search_of: dict[QueuedSearch, _PooledSearch] = {}
        self.threads: list[threading.Thread] = []
        if searches > 1:
            self.threads = [threading.Thread(target=search.run, daemon=True) for search in self.searches]
            weakref.finalize(self, self.shared.stop)
            for thread in self.threads:
                thread.start()

    @property
    def rows(self) -> int:
        return sum(search.rows for search in self.searches)

    def admit(self, waiting: list[QueuedSearch]) -> list[QueuedSearch]:
        admitted = False
        with self.shared.lock:
            for queued in waiting:
                if self.rows >= self.max_rows:
                    break
                self.search_of[queued] = search = min(self.searches, key=lambda search: search.rows)
                search.add(queued)
                admitted = True
            if admitted:
                self.shared.changed.notify_all()
        return list(self.search_of) if admitted else []

    def step(self) -> list[SearchResult]:
        """The requests that finished, as soon as there are some, after RESULT_POLL_SECONDS at the latest."""
        if not self.threads:
            self.searches[0].step()
        finished = self.shared.take(RESULT_POLL_SECONDS if self.threads else 0.0)
        for result in finished:
            del self.search_of[result.queued]
        return finished

    def cancel(self, queued: QueuedSearch) -> None:
        with self.shared.lock:
            self.search_of.pop(queued).cancel(queued)
            self.shared.finished = [result for result in self.shared.finished if result.queued is not queued]
            self.shared.changed.notify_all()

    def close(self) -> None:
        self.shared.stop()
        for thread in self.threads:
            thread.join()


class _SharedState:
    """What the caller and the search threads share; every access to it, and to a search's requests, holds the lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)  # requests were added or cancelled, or the pool stops
        self.results = threading.Condition(self.lock)  # requests finished
        self.finished: list[SearchResult] = []
        self.stopped = False

    def stop(self) -> None:
        with self.lock:
            self.stopped = True
            self.changed.notify_all()

    def take(self, seconds: float) -> list[SearchResult]:
        """The requests that finished; waits up to `seconds` if there are none."""
        with self.lock:
            if seconds and not self.finished:
                self.results.wait(seconds)
            finished, self.finished = self.finished, []
            return finished


class _PooledSearch:
    """One search, and the requests that join and leave it before its next step."""

    def __init__(self, search: EngineSearch, shared: _SharedState, calls: tuple[int, int]) -> None:
        self.search, self.shared, self.calls = search, shared, calls
        self.rows = 0  # of all requests that were added, if their beams are full
        self.requests: set[QueuedSearch] = set()  # added, and neither finished nor cancelled
        self.joining: list[QueuedSearch] = []
        self.leaving: set[QueuedSearch] = set()
        self.numbers: dict[QueuedSearch, int] = {}  # in `search`; used by `step` alone

    def add(self, queued: QueuedSearch) -> None:
        self.joining.append(queued)
        self.requests.add(queued)
        self.rows += queued.request.options.beam

    def cancel(self, queued: QueuedSearch) -> None:
        if self._remove(queued):
            self.leaving.add(queued)

    def _remove(self, queued: QueuedSearch) -> bool:
        if queued not in self.requests:
            return False
        self.requests.remove(queued)
        self.rows -= queued.request.options.beam
        return True

    def run(self) -> None:
        """Step while there are requests, until the pool stops."""
        while True:
            with self.shared.lock:
                while not (self.shared.stopped or self.joining or self.leaving or self.numbers):
                    self.shared.changed.wait()
                if self.shared.stopped:
                    return
            self.step()

    def step(self) -> None:
        """Let requests join and leave, compute one step, and publish the requests that finished."""
        with self.shared.lock:
            joining, self.joining = self.joining, []
            leaving, self.leaving = self.leaving, set()
        for queued in leaving & self.numbers.keys():
            self.search.drop(self.numbers.pop(queued))
        outcomes: Outcomes = {}
        for queued in joining:
            if queued not in leaving:
                try:
                    self.numbers[queued] = self.search.add(queued.request)
                except Exception as error:
                    outcomes[queued] = error
        outcomes |= self._compute()
        with self.shared.lock:
            for queued, outcome in outcomes.items():
                if self._remove(queued):
                    self.shared.finished.append(SearchResult(queued, outcome))
                self.leaving.discard(queued)
            if self.shared.finished:
                self.shared.results.notify()

    def _compute(self) -> Outcomes:
        """One call into the engine. An error ends all requests of this search; other searches continue."""
        if not self.numbers:
            return {}
        try:
            hypotheses = dict(self.search.step(*self.calls))
        except Exception as error:
            outcomes: Outcomes = dict.fromkeys(self.numbers, error)
            for number in self.numbers.values():
                self.search.drop(number)
            self.numbers.clear()
            return outcomes
        finished = {queued: number for queued, number in self.numbers.items() if number in hypotheses}
        for queued in finished:
            del self.numbers[queued]
        return {queued: hypotheses[number] for queued, number in finished.items()}
