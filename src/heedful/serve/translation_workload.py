"""The translation tasks of a model process: tasks -> search requests -> the translations of each task.

The sentences of all tasks share one scheduler (continuous batching). This module knows neither HTTP nor the pipe.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from heedful.inference.results import SourcePart, Translation, join_parts
from heedful.inference.scheduler import Outcome, QueuedRequest, Scheduler, SearchBackend
from heedful.inference.translator import Translator
from heedful.search import SearchOptions
from heedful.serve.logs import trace
from heedful.serve.messages import Counts, Event, WorkerTask

PACE = 0.02  # seconds by which each sentence of a task gives precedence to younger tasks


class Workload(Protocol):
    """A model and the tasks that it computes."""

    counts: Counts

    @property
    def waiting(self) -> Sized:
        """What has not been started."""

    def add(self, task: WorkerTask) -> None:
        """Queue a task, or raise a HeedfulError that says what is wrong with it."""

    def cancel(self, task: int) -> None:
        """Forget a task, whether it waits or runs."""

    def step(self) -> list[Event]:
        """Compute a little; nothing if there is nothing to do."""

    def idle(self) -> bool: ...


class PartPlace(NamedTuple):
    """Where the translations of a part belong."""

    task: int
    sentence: int
    part: int


@dataclass
class TaskProgress:
    """The parts of each sentence of a task, and the translations found so far."""

    parts: list[list[SourcePart]]
    translations: list[list[list[Translation]]]
    requests: list[QueuedRequest]
    missing: int  # parts without translations


class TranslationWorkload:
    """A translator, with the sentences of all tasks in one scheduler."""

    def __init__(
        self,
        translator: Translator,
        backend: SearchBackend | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.translator = translator
        config = translator.configs[0]
        self.vocab_size, self.special = config.vocab_size, {config.bos_id, config.eos_id, config.pad_id}
        self.options = lru_cache(128)(self._options)
        self.counts = Counts()
        self.scheduler = Scheduler(backend or translator.shared_backend(), clock, self._count_batch)
        self.places: dict[QueuedRequest, PartPlace] = {}
        self.tasks: dict[int, TaskProgress] = {}
        self.ready: list[Event] = []

    @property
    def waiting(self) -> Sized:
        return self.scheduler.waiting

    def _count_batch(self, size: int) -> None:
        self.counts.batches.append(size)

    def add(self, task: WorkerTask) -> None:
        options = self.options(tuple(task.payload.get("search", {}).items()))
        texts = task.payload["texts"]
        parts: list[list[SourcePart]] = [[] for _ in texts]
        prefixes, openings = [task.payload.get("prefix", "")] * len(texts), task.payload.get("openings", ())
        for part in self.translator.parts(texts, prefixes, openings=openings):
            parts[part.line].append(part)
        numbered = [
            (PartPlace(task.id, sentence, number), part)
            for sentence, of_sentence in enumerate(parts)
            for number, part in enumerate(of_sentence)
        ]
        self._check_prefixes(options, [part for _, part in numbered])
        requests = self.scheduler.add([self.translator.search_request(part, options) for _, part in numbered], PACE)
        self.places.update(zip(requests, (place for place, _ in numbered), strict=True))
        translations: list[list[list[Translation]]] = [[[] for _ in of_sentence] for of_sentence in parts]
        self.tasks[task.id] = TaskProgress(parts, translations, requests, len(requests))
        self.counts.tokens_in += sum(len(part.ids) for _, part in numbered)
        if not requests:
            self._finish(task.id)

    def _options(self, search: tuple[tuple[str, Any], ...]) -> SearchOptions:
        """The folder's search settings with the changes of a task, which are none for most."""
        options = self.translator.options(dict(search))
        options.check_beam()
        return options

    def _check_prefixes(self, options: SearchOptions, parts: list[SourcePart]) -> None:
        """Refuse a prefix before the search would, when other tasks are in it."""
        if any(part.prefix for part in parts):
            forced = options.model_copy(update={"prefix": tuple(part.prefix for part in parts)})
            forced.check(len(parts), self.vocab_size, self.special)

    def cancel(self, task: int) -> None:
        if (progress := self.tasks.pop(task, None)) is not None:
            self.scheduler.cancel(set(progress.requests))
            for queued in progress.requests:
                self.places.pop(queued, None)

    def idle(self) -> bool:
        return self.scheduler.idle() and not self.ready

    def step(self) -> list[Event]:
        for queued, outcome in self.scheduler.step():
            if queued in self.places:  # its task has not failed in this very step
                self._take(self.places.pop(queued), outcome)
        ready, self.ready = self.ready, []
        return ready

    def _take(self, place: PartPlace, outcome: Outcome) -> None:
        """Store what became of a part."""
        try:
            if isinstance(outcome, Exception):
                raise outcome
            translations = self.translator.decode(outcome)
        except Exception as error:  # of a broken model or vocabulary
            self.cancel(place.task)
            self.ready.append(Event(place.task, "failed", trace(error)))
            return
        progress = self.tasks[place.task]
        progress.translations[place.sentence][place.part] = translations
        progress.missing -= 1
        self.counts.tokens_out += sum(len(translation.ids) for translation in translations)
        if not progress.missing:
            self._finish(place.task)

    def _finish(self, task: int) -> None:
        progress = self.tasks.pop(task)
        self.ready.append(Event(task, "done", (progress.parts, progress.translations)))


def translations(
    sentences: list[list[list[Translation]]], fields: Sequence[str] = ("text",)
) -> list[list[dict[str, Any]]]:
    """The translations of the parts of each sentence -> those of the sentence, best first, with these fields."""
    joined = [join_parts(parts) if parts else [] for parts in sentences]
    return [[{name: getattr(each, name) for name in fields} for each in n_best] for n_best in joined]
