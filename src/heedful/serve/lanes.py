"""What a model does with the requests it is given, one step at a time: the side of the pipe that computes.

Sentences of many requests are searched together. A search that has begun is a lane; lanes take turns by the time that
they have had, so that a lone sentence does not wait for a book, and a new one begins as an old one empties. It knows
no HTTP, no pipe and no clock but the one that it is given.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from heedful.inference.results import SourcePart, Translation, join_parts
from heedful.inference.translator import Translator
from heedful.search import SearchOptions
from heedful.serve.logs import trace
from heedful.serve.messages import Counts, Event, WorkerTask

LANES = 4  # searches that go on at once
ROWS = 256  # hypotheses of a search
WORTH = 3  # times as many sentences as are still being searched are worth a search of their own
PATIENCE = 1.0  # seconds after which a sentence need not wait for a search to become small
PACE = 0.02  # seconds by which each sentence of a request gives precedence to younger requests
LIVE_TOKENS = 1 << 15  # source tokens in all rows of a search


class Workload(Protocol):
    """A model at work."""

    counts: Counts

    @property
    def waiting(self) -> Sized:
        """What is not begun yet."""

    def add(self, task: WorkerTask) -> None:
        """Take on a task, or raise a HeedfulError that says what is wrong with it."""

    def cancel(self, task: int) -> None:
        """Nobody waits for this any more."""

    def step(self) -> list[Event]:
        """Compute a little; nothing if there is nothing to do."""

    def idle(self) -> bool: ...


@dataclass
class Lane:
    """A computation that has begun: for whom, its next steps, and the seconds that it has had."""

    tasks: frozenset[int]
    steps: Iterator[list[Event]]
    spent: float
    size: int


class Lanes:
    """Computations that take turns: the one that had least time is next."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.running: list[Lane] = []

    def begin(self, tasks: Iterable[int], steps: Iterator[list[Event]], size: int = 1) -> Lane:
        lane = Lane(frozenset(tasks), steps, min((each.spent for each in self.running), default=0.0), size)
        self.running.append(lane)
        return lane

    def step(self) -> list[Event]:
        if not self.running:
            return []
        lane, began = min(self.running, key=lambda each: each.spent), self.clock()
        try:
            events = next(lane.steps, None)
        except Exception as error:  # what one computation does must not end the others
            self.running.remove(lane)
            return [Event(task, "failed", trace(error)) for task in sorted(lane.tasks)]
        lane.spent += self.clock() - began
        if events is None:
            self.running.remove(lane)
        return events or []


@dataclass
class Unit:
    """A part of a sentence of a task, waiting or in a lane."""

    task: int
    sentence: int
    part: SourcePart
    options: SearchOptions
    since: float
    order: float


@dataclass
class Pending:
    """The sentences of a task: the parts that each consists of, and what became of them."""

    task: WorkerTask
    parts: list[list[SourcePart]]
    found: list[list[list[Translation] | None]]
    missing: int


class TranslationWorkload:
    """A translator whose sentences of all requests share its searches."""

    def __init__(self, translator: Translator, clock: Callable[[], float] = time.monotonic) -> None:
        self.translator, self.clock = translator, clock
        config = translator.configs[0]
        self.vocab_size, self.special = config.vocab_size, {config.bos_id, config.eos_id, config.pad_id}
        self.options = lru_cache(128)(self._options)
        self.counts = Counts()
        self.lanes = Lanes(clock)
        self.waiting: list[Unit] = []
        self.pending: dict[int, Pending] = {}
        self.ready: list[Event] = []

    def add(self, task: WorkerTask) -> None:
        asked = task.asked
        options = self.options(tuple(asked.get("search", {}).items()))
        texts = asked["texts"]
        parts: list[list[SourcePart]] = [[] for _ in texts]
        prefixes, openings = [asked.get("prefix", "")] * len(texts), asked.get("openings", ())
        for part in self.translator.parts(texts, prefixes, openings=openings):
            parts[part.line].append(part)
        every = [part for sentence in parts for part in sentence]
        self._check(options, every)
        found: list[list[list[Translation] | None]] = [[None] * len(sentence) for sentence in parts]
        self.pending[task.id] = pending = Pending(task, parts, found, len(every))
        now = self.clock()
        numbered = ((index, part) for index, sentence in enumerate(parts) for part in sentence)
        self.waiting += [
            Unit(task.id, index, part, options, now, now + PACE * place) for place, (index, part) in enumerate(numbered)
        ]
        self.counts.tokens_in += sum(len(part.ids) for part in every)
        if not every:
            self._finish(pending)

    def _options(self, search: tuple[tuple[str, Any], ...]) -> SearchOptions:
        """What a request changes of the settings, which is nothing for most."""
        options = self.translator.options(dict(search))
        options.check_beam()
        return options

    def _check(self, options: SearchOptions, parts: list[SourcePart]) -> None:
        """Refuse now what a search would refuse when others are in it."""
        if any(part.prefix for part in parts):
            asked = options.model_copy(update={"prefix": tuple(part.prefix for part in parts)})
            asked.check(len(parts), self.vocab_size, self.special)

    def cancel(self, task: int) -> None:
        self.pending.pop(task, None)
        self.waiting = [unit for unit in self.waiting if unit.task != task]

    def idle(self) -> bool:
        return not (self.waiting or self.lanes.running or self.ready)

    def step(self) -> list[Event]:
        while self._may_begin():
            self._begin()
        failed = self.lanes.step()
        for event in failed:
            self.cancel(event.task)
        ready, self.ready = self.ready, []
        return ready + failed

    def _may_begin(self) -> bool:
        """Whether what waits is worth a search of its own: much of what was begun has ended, or somebody waits long."""
        lanes = len(self.lanes.running)
        if not self.waiting or lanes >= LANES:
            return False
        live = sum(lane.size for lane in self.lanes.running)
        overdue = self.clock() - min(unit.since for unit in self.waiting) >= PATIENCE
        return len(self.waiting) >= WORTH * live or (overdue and lanes == 1)

    def _begin(self) -> None:
        units = self._choose()
        chosen = set(map(id, units))
        self.waiting = [unit for unit in self.waiting if id(unit) not in chosen]
        self.counts.batches.append(len(units))
        lane = self.lanes.begin({unit.task for unit in units}, iter(()), len(units))
        lane.steps = self._search(units, lane)

    def _choose(self) -> list[Unit]:
        """Sentences whose turn it is, with the same options and of similar length."""
        self.waiting.sort(key=lambda unit: unit.order)
        first = self.waiting[0]
        same = [unit for unit in self.waiting if unit.options == first.options]
        room = max(1, ROWS // first.options.beam)
        near = sorted(same[: 2 * room], key=lambda unit: len(unit.part.ids))
        place = next(index for index, unit in enumerate(near) if unit is first)
        start = max(0, min(place - room // 2, len(near) - room))
        units = near[start : start + room]
        longest = max(len(unit.part.ids) for unit in units)
        most = max(1, LIVE_TOKENS // (longest * first.options.beam))
        return units if len(units) <= most else [first, *(u for u in units if u is not first)][:most]

    def _search(self, units: list[Unit], lane: Lane) -> Iterator[list[Event]]:
        gone: set[int] = set()
        for ended in self.translator.steps([unit.part for unit in units], units[0].options, gone):
            for index, translations in ended:
                self._ended(units[index], translations)
            over = {index for index, _ in ended} | gone
            gone |= {index for index, unit in enumerate(units) if unit.task not in self.pending and index not in over}
            lane.size -= len(ended)
            yield []

    def _ended(self, unit: Unit, translations: list[Translation]) -> None:
        pending = self.pending.get(unit.task)
        if pending is None:
            return
        place = next(i for i, part in enumerate(pending.parts[unit.sentence]) if part is unit.part)
        pending.found[unit.sentence][place] = translations
        pending.missing -= 1
        self.counts.tokens_out += sum(len(each.ids) for each in translations)
        if not pending.missing:
            self._finish(pending)

    def _finish(self, pending: Pending) -> None:
        self.pending.pop(pending.task.id)
        sentences = [[each or [] for each in found] for found in pending.found]
        self.ready.append(Event(pending.task.id, "done", (pending.parts, sentences)))


def translations(
    sentences: list[list[list[Translation]]], fields: Sequence[str] = ("text",)
) -> list[list[dict[str, Any]]]:
    """What became of the parts of each sentence -> its translations, best first; of each only what is asked for."""
    plain = [join_parts(parts) if parts else [] for parts in sentences]
    return [[{name: getattr(each, name) for name in fields} for each in ways] for ways in plain]
