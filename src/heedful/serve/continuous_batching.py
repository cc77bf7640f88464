"""A translator on the compiled engine: all requests share one search, which sentences join and leave at any step.

Nobody waits for a batch to end: what is asked now is computed with the next token of everybody else.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from heedful.errors import FolderError, HeedfulError
from heedful.inference.translator import Translator
from heedful.native import SearchPool, rows_at_once
from heedful.serve.lanes import TranslationWorkload, Unit
from heedful.serve.logs import trace
from heedful.serve.messages import Event


class ContinuousBatching(TranslationWorkload):
    """Sentences wait only for room, the next of every request before the later ones of a long one."""

    def __init__(self, translator: Translator, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(translator, clock)
        engine = translator.engines[0]
        self.search = SearchPool(engine, translator.threads)
        self.most = 2 * rows_at_once(engine) * translator.threads  # so many more wait inside
        self.inside: dict[int, Unit] = {}  # what is being searched, by its number there

    def idle(self) -> bool:
        return not (self.waiting or self.inside or self.ready)

    def cancel(self, task: int) -> None:
        super().cancel(task)
        for number in [number for number, unit in self.inside.items() if unit.task == task]:
            del self.inside[number]
            self.search.drop(number)

    def step(self) -> list[Event]:
        self._fill()
        failed: list[Event] = []
        try:
            ended = [(self.inside.pop(number), hypotheses) for number, hypotheses in self.search.step()]
        except HeedfulError as error:  # the model itself is broken, for every request in the search
            ended = []
            failed = [Event(task, "failed", trace(error)) for task in sorted({u.task for u in self.inside.values()})]
        for unit, hypotheses in ended:
            try:
                self._ended(unit, self.translator.found(hypotheses))
            except FolderError as error:  # the vocabulary is broken, for the tokens of this sentence
                failed.append(Event(unit.task, "failed", trace(error)))
        for event in failed:
            self.cancel(event.task)
        ready, self.ready = self.ready, []
        return ready + failed

    def _fill(self) -> None:
        if not self.waiting or self.search.rows >= self.most:
            return
        self.waiting.sort(key=lambda unit: -unit.order)
        eos = self.translator.source_tokenizer.specials.eos
        while self.waiting and self.search.rows < self.most:
            unit = self.waiting.pop()
            part = unit.part
            self.inside[self.search.add([*part.ids, eos], unit.options, part.prefix, part.shortlist)] = unit
        self.counts.batches.append(len(self.inside))
