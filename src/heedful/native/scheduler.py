"""Many sentences through the engine: they join as others end, on one worker or several, and come out in order."""

from __future__ import annotations

import itertools
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from heedful.native.engine import Engine, EngineSearch
from heedful.search import Hypothesis, SearchOptions

AHEAD = 4096  # sentences that may be done before one that was asked earlier
ENOUGH = 16  # sentences that are fetched at a time, so that workers seldom wait for Python,
STEPS = 4  # and after how many steps at the latest, so that Ctrl-C is heard
LOOK = 0.002  # seconds after which one who waits for searches looks for other things to do
PAUSE = 0.01  # seconds that one who has nothing to do waits until he looks for a sentence again


class SearchRequest(NamedTuple):
    """One sentence: its ids with eos, how to search, the ids that its output must begin with, and those it may have."""

    source: list[int]
    options: SearchOptions
    prefix: tuple[int, ...] = ()
    shortlist: npt.NDArray[np.int32] | None = None


def search_all(
    engine: Engine, asked: Iterable[SearchRequest | None], workers: int = 1, threads: int = 1
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

    def __init__(self, asked: Iterable[SearchRequest | None], threads: int) -> None:
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

    def _next(self) -> tuple[int, SearchRequest] | None:
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


Ended = list[tuple[int, list[Hypothesis]]]  # sentences that are done, by number


class SearchPool:
    """Several searches of one engine, each on a thread that goes on by itself; used like one search.

    Who comes or goes does so before the next step of the search it is in. A single search has no thread: it takes its
    steps when it is told to.
    """

    def __init__(self, engine: Engine, threads: int) -> None:
        shared = _Shared()
        self.shared, self.alone = shared, threads == 1
        self.searches = [_Search(EngineSearch(engine), shared) for _ in range(threads)]
        self.numbers = itertools.count()
        self.of: dict[int, _Search] = {}  # the search that each sentence is in
        if not self.alone:
            for search in self.searches:
                threading.Thread(target=search.run, daemon=True).start()
            weakref.finalize(self, shared.stop)

    @property
    def rows(self) -> int:
        return sum(search.rows for search in self.searches)

    def add(self, *asked: Any) -> int:
        """A sentence, as `EngineSearch` takes it, to the search that has least to do."""
        number, search = next(self.numbers), min(self.searches, key=lambda search: search.rows)
        self.of[number] = search
        with self.shared.lock:
            search.add(number, SearchRequest(*asked))
            self.shared.changed.notify_all()
        return number

    def step(self) -> Ended:
        """Those that ended, as soon as there are some, and soon in any case: somebody else may come meanwhile."""
        if self.alone:
            self.searches[0].step()
        ended = self.shared.take(0.0 if self.alone or not self.of else LOOK)
        for number, _ in ended:
            del self.of[number]
        return ended

    def drop(self, number: int) -> None:
        """A sentence leaves."""
        with self.shared.lock:
            self.of.pop(number).drop(number)
            self.shared.ended = [each for each in self.shared.ended if each[0] != number]
            self.shared.changed.notify_all()


class _Shared:
    """What searches and whoever uses them tell each other, all under one lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)  # for the searches: who comes and goes
        self.news = threading.Condition(self.lock)  # from the searches: who ended
        self.ended: Ended = []
        self.problem: BaseException | None = None
        self.stopped = False

    def stop(self) -> None:
        with self.lock:
            self.stopped = True
            self.changed.notify_all()

    def take(self, patience: float) -> Ended:
        """Those that ended, after so many seconds at the latest."""
        with self.lock:
            if patience and not (self.ended or self.problem):
                self.news.wait(patience)
            problem, self.problem = self.problem, None
            if problem is not None:
                raise problem
            ended, self.ended = self.ended, []
            return ended


class _Search:
    """A search, and who comes and goes while it takes a step."""

    def __init__(self, search: EngineSearch, shared: _Shared) -> None:
        self.search, self.shared = search, shared
        self.rows = 0
        self.beams: dict[int, int] = {}  # of everybody who waits for it, by number
        self.coming: dict[int, SearchRequest] = {}
        self.gone: set[int] = set()  # who came, and waits no more
        self.inside: dict[int, int] = {}  # the number of each in the search; only steps know of it
        self.broken = False  # until all that were in it have left

    def add(self, number: int, asked: SearchRequest) -> None:
        self.coming[number], self.beams[number] = asked, asked.options.beam
        self.rows += asked.options.beam

    def drop(self, number: int) -> None:
        if number in self.beams:  # and did not end just now
            self.rows -= self.beams.pop(number)
            if self.coming.pop(number, None) is None:
                self.gone.add(number)

    def run(self) -> None:
        """Step after step, as long as there is somebody to take one for."""
        while True:
            with self.shared.lock:
                while not (self.shared.stopped or self.gone or (not self.broken and (self.coming or self.inside))):
                    self.shared.changed.wait()
                if self.shared.stopped:
                    return
            self.step()

    def step(self) -> None:
        """One token more for all, with those who came and without those who went."""
        with self.shared.lock:
            coming, self.coming = self.coming, {}
            gone, self.gone = self.gone, set()
        try:
            for number in gone & self.inside.keys():
                self.search.drop(self.inside.pop(number))
            self.broken = self.broken and bool(self.inside)
            for number, asked in coming.items():
                self.inside[number] = self.search.add(*asked)
            ended = dict(self.search.step()) if self.inside and not self.broken else {}
        except BaseException as problem:
            with self.shared.lock:
                self.broken, self.shared.problem = True, problem
                self.shared.news.notify()
            return
        over = {number: inner for number, inner in self.inside.items() if inner in ended}
        with self.shared.lock:
            for number, inner in over.items():
                del self.inside[number]
                self.gone.discard(number)
                if number in self.beams:
                    self.rows -= self.beams.pop(number)
                    self.shared.ended.append((number, ended[inner]))
            if self.shared.ended:
                self.shared.news.notify()
