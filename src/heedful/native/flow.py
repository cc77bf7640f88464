"""Many sentences through the engine: they join as others end, on one worker or several, and come out in order."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from heedful.native.engine import Engine, EngineSearch
from heedful.search import Hypothesis, Options

AHEAD = 4096  # sentences that may be done before one that was asked earlier
ENOUGH = 16  # sentences that are fetched at a time, so that workers seldom wait for Python,
STEPS = 4  # and after how many steps at the latest, so that Ctrl-C is heard


class Asked(NamedTuple):
    """One sentence: its ids with eos, how to search, the ids that its output must begin with, and those it may have."""

    source: list[int]
    options: Options
    prefix: tuple[int, ...] = ()
    shortlist: npt.NDArray[np.int32] | None = None


def search_all(
    engine: Engine, asked: Iterable[Asked], workers: int = 1, threads: int = 1
) -> Iterator[list[Hypothesis]]:
    """For each sentence, in order and as early as can be, its hypotheses; `asked` is read as there is room.

    Each worker has so many threads.
    """
    flow = _Flow(asked, threads)
    if workers == 1:
        for _ in flow.work(engine):
            yield from flow.ready()
        return
    flow.working = workers
    crew = [threading.Thread(target=flow.run, args=(engine,), daemon=True) for _ in range(workers)]
    for thread in crew:
        thread.start()
    try:
        while flow.working or flow.found or flow.problem:
            yield from flow.wait()
    finally:
        flow.stopped = True
        for thread in crew:
            thread.join()


class _Flow:
    """What workers share: the sentences to come, and those that are found but wait for an earlier one."""

    def __init__(self, asked: Iterable[Asked], threads: int) -> None:
        self.threads = threads
        self.asked = enumerate(asked)
        self.reading, self.news = threading.Lock(), threading.Condition()
        self.found: dict[int, list[Hypothesis]] = {}
        self.given = 0  # how many are out
        self.read = self.stopped = False
        self.working = 0
        self.problem: BaseException | None = None

    def run(self, engine: Engine) -> None:
        """One worker, in a thread of its own."""
        try:
            for _ in self.work(engine):
                if self.stopped:
                    return
        except BaseException as problem:
            self.problem, self.stopped = problem, True
        finally:
            with self.news:
                self.working -= 1
                self.news.notify()

    def work(self, engine: Engine) -> Iterator[None]:
        """Step by step, until there is nothing left."""
        search, places = EngineSearch(engine, self.threads), dict[int, int]()
        most = 2 * search.most  # so many more wait inside
        while True:
            while search.rows < most and (each := self._next()) is not None:
                places[search.add(*each[1])] = each[0]
            if not places and self.read:
                return
            ended = search.step(STEPS, ENOUGH)
            if ended:
                with self.news:
                    self.found |= {places.pop(number): hypotheses for number, hypotheses in ended}
                    self.news.notify()
            yield

    def _next(self) -> tuple[int, Asked] | None:
        if len(self.found) > AHEAD:
            time.sleep(0.001)  # whoever takes what is found is behind
            return None
        with self.reading:
            each = next(self.asked, None)
        self.read |= each is None
        return each

    def ready(self) -> Iterator[list[Hypothesis]]:
        """What can go out."""
        while self.given in self.found:
            self.given += 1
            yield self.found.pop(self.given - 1)

    def wait(self) -> Iterator[list[Hypothesis]]:
        """The same, as soon as there is something."""
        with self.news:
            while self.given not in self.found and self.working and self.problem is None:
                self.news.wait()
            ready = list(self.ready())
        if self.problem is not None:
            raise self.problem
        yield from ready


class EngineSearches:
    """Several searches of one engine that take their steps at the same time, each on a thread; used like one."""

    def __init__(self, engine: Engine, threads: int) -> None:
        self.searches = [EngineSearch(engine) for _ in range(threads)]
        self.pool = ThreadPoolExecutor(threads - 1) if threads > 1 else None

    @property
    def rows(self) -> int:
        return sum(search.rows for search in self.searches)

    def add(self, *asked: Any) -> int:
        """A sentence, as `EngineSearch` takes it, to the search that has least to do."""
        place = min(range(len(self.searches)), key=lambda index: self.searches[index].rows)
        return self.searches[place].add(*asked) * len(self.searches) + place

    def step(self) -> list[tuple[int, list[Hypothesis]]]:
        """One token more for all."""
        busy = [place for place, search in enumerate(self.searches) if search.options]
        others = [self.pool.submit(self.searches[place].step) for place in busy[1:]] if self.pool else []
        ended = [self.searches[place].step() for place in busy[:1]] + [other.result() for other in others]
        count = len(self.searches)
        return [
            (number * count + place, found) for place, each in zip(busy, ended, strict=True) for number, found in each
        ]

    def drop(self, number: int) -> None:
        """A sentence leaves, done or not."""
        self.searches[number % len(self.searches)].drop(number // len(self.searches))
