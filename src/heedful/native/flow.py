"""Many sentences through the engine: they join as others end, on one worker or several, and come out in order."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from heedful.native.engine import Engine, EngineSearch
from heedful.search import Hypothesis, Options

AHEAD = 4096  # sentences that may be done before one that was asked earlier
ENOUGH = 16  # sentences that are fetched at a time, so that workers seldom wait for Python,
STEPS = 4  # and after how many steps at the latest, so that Ctrl-C is heard
PAUSE = 0.01  # seconds that one who has nothing to do waits until he looks for a sentence again


class Asked(NamedTuple):
    """One sentence: its ids with eos, how to search, the ids that its output must begin with, and those it may have."""

    source: list[int]
    options: Options
    prefix: tuple[int, ...] = ()
    shortlist: npt.NDArray[np.int32] | None = None


def search_all(
    engine: Engine, asked: Iterable[Asked | None], workers: int = 1, threads: int = 1
) -> Iterator[list[Hypothesis]]:
    """For each sentence, in order and as early as can be, its hypotheses; `asked` is read as there is room.

    Each worker has so many threads. None among the sentences says that there is no more for now, and a sentence of no
    tokens has no hypotheses.
    """
    flow = _Flow(asked, threads)
    if workers == 1:
        for _ in flow.work(engine):
            yield from flow.ready()
        yield from flow.ready()  # sentences of no tokens take no step
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

    def __init__(self, asked: Iterable[Asked | None], threads: int) -> None:
        self.threads = threads
        self.asked, self.taken = iter(asked), 0
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
                place, asked = each
                if asked.source:
                    places[search.add(*asked)] = place
                else:
                    self._tell({place: []})
            if places:
                ended = search.step(STEPS, ENOUGH)
                self._tell({places.pop(number): hypotheses for number, hypotheses in ended})
            elif self.read:
                return
            else:
                time.sleep(PAUSE)
            yield

    def _next(self) -> tuple[int, Asked] | None:
        """A sentence and its place, if there is one for now."""
        if len(self.found) > AHEAD:
            time.sleep(0.001)  # whoever takes what is found is behind
            return None
        with self.reading:
            for asked in self.asked:
                if asked is None:
                    return None
                self.taken += 1
                return self.taken - 1, asked
            self.read = True
            return None

    def _tell(self, found: dict[int, list[Hypothesis]]) -> None:
        if found:
            with self.news:
                self.found |= found
                self.news.notify()

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


Ended = list[tuple[int, list[Hypothesis]]]  # sentences that a step ended, by number


class EngineSearches:
    """Several searches of one engine, each on a thread, none of which waits for another; used like one.

    A search that takes a step is left alone: who comes or goes meanwhile does so before its next one.
    """

    def __init__(self, engine: Engine, threads: int) -> None:
        take: Any = ThreadPoolExecutor(threads).submit if threads > 1 else _Now
        self.searches = [_Search(EngineSearch(engine), take) for _ in range(threads)]
        self.numbers = itertools.count()
        self.of: dict[int, _Search] = {}  # the search that each sentence is in

    @property
    def rows(self) -> int:
        return sum(search.rows for search in self.searches)

    def add(self, *asked: Any) -> int:
        """A sentence, as `EngineSearch` takes it, to the search that has least to do."""
        number, search = next(self.numbers), min(self.searches, key=lambda search: search.rows)
        self.of[number] = search
        search.coming[number] = Asked(*asked)
        search.rows += search.coming[number].options.beam
        return number

    def step(self) -> Ended:
        """One token more for all that no step is being taken for -> those that ended, as soon as one step is over."""
        for search in self.searches:
            search.begin()
        steps: list[Any] = [search.step for search in self.searches if search.step is not None]
        if not any(step.done() for step in steps):
            wait(steps, return_when=FIRST_COMPLETED)
        ended = [each for search in self.searches for each in search.end()]
        for number, _ in ended:
            del self.of[number]
        return ended

    def drop(self, number: int) -> None:
        """A sentence leaves."""
        self.of.pop(number).drop(number)


class _Now:
    """A step that is taken at once, used like one that an executor takes."""

    def __init__(self, step: Callable[[], Ended]) -> None:
        self.ended = step()

    def done(self) -> bool:
        return True

    def result(self) -> Ended:
        return self.ended


class _Search:
    """A search, the step that it is taking, and who comes and goes meanwhile."""

    def __init__(self, search: EngineSearch, take: Callable[[Callable[[], Ended]], Future[Ended] | _Now]) -> None:
        self.search, self.take = search, take
        self.step: Future[Ended] | _Now | None = None
        self.rows = 0
        self.coming: dict[int, Asked] = {}  # by number
        self.inside: dict[int, tuple[int, int]] = {}  # by number in the search: the number here, and the beam
        self.gone: set[int] = set()

    def begin(self) -> None:
        """Take a step, if none is being taken and there is somebody to take it for."""
        if self.step is not None:
            return
        for number, asked in self.coming.items():
            self.inside[self.search.add(*asked)] = number, asked.options.beam
        self.coming.clear()
        if self.inside:
            self.step = self.take(self.search.step)

    def end(self) -> Ended:
        """What came of the step, if it is over."""
        if self.step is None or not self.step.done():
            return []
        step, self.step = self.step, None
        ended = []
        for inner, found in step.result():
            number, beam = self.inside.pop(inner)
            if number not in self.gone:
                self.rows -= beam
                ended.append((number, found))
        if self.gone:
            for inner in [inner for inner, (number, _) in self.inside.items() if number in self.gone]:
                del self.inside[inner]
                self.search.drop(inner)
            self.gone.clear()
        return ended

    def drop(self, number: int) -> None:
        if number in self.coming:
            self.rows -= self.coming.pop(number).options.beam
            return
        inner, beam = next(((inner, beam) for inner, (each, beam) in self.inside.items() if each == number), (-1, 0))
        if inner < 0:  # it ended with the step in which another search broke
            return
        self.rows -= beam
        if self.step is not None:
            self.gone.add(number)
        else:
            del self.inside[inner]
            self.search.drop(inner)
