"""The server's end of the pipes: which models there are, what they are asked, and what becomes of it.

Nothing here computes or waits for a computation, so nothing here keeps a request waiting. It knows no HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
import multiprocessing
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from multiprocessing.connection import Connection
from typing import Any

from heedful.errors import FolderError, SettingError
from heedful.serve.messages import Counts, Event, Task
from heedful.serve.settings import Served

log = logging.getLogger("heedful.serve")
REMEMBERED = 30.0  # seconds of finished work that the rate is estimated from
START = Callable[[Connection, Served], Callable[[], None]]


class RefusedError(Exception):
    """The model cannot take this now; it may in some seconds."""

    def __init__(self, reason: str, message: str, seconds: float = 1.0) -> None:
        super().__init__(message)
        self.reason, self.seconds = reason, max(1, min(120, math.ceil(seconds)))


def start_process(threads: int, precision: str) -> START:
    """Models in processes of their own."""

    def start(connection: Connection, served: Served) -> Callable[[], None]:
        from heedful.serve.start import process  # the model's side; torch is imported there, and not here

        context = multiprocessing.get_context("spawn")
        child = context.Process(target=process, args=(connection, served.folder, threads, precision), daemon=True)
        child.start()
        connection.close()

        def end() -> None:
            child.join(2)
            if child.is_alive():
                child.kill()
                child.join()

        return end

    return start


def start_thread(connection: Connection, served: Served) -> Callable[[], None]:
    """Models in threads of this process: for tests, and where processes cannot be started."""
    from heedful.serve.worker import serve

    def run() -> None:
        serve(connection, served.folder)
        connection.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return lambda: thread.join(5)


class Job:
    """A task that somebody waits for."""

    def __init__(self, task: Task, cost: int) -> None:
        self.task, self.cost = task, cost
        self.events: asyncio.Queue[Event] = asyncio.Queue()


class Child:
    """One running model: its pipe and the jobs that it has."""

    def __init__(self, start: START, served: Served, lost: Callable[[Child], None], counted: Callable[[Counts], None]):
        self.jobs: dict[int, Job] = {}
        self.card: dict[str, Any] = {}
        self.lost, self.counted = lost, counted
        self.connection, theirs = multiprocessing.Pipe()
        self.end = start(theirs, served)
        self.loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = self.loop.create_future()
        self.closed = False
        self.loop.add_reader(self.connection.fileno(), self._read)

    def give(self, job: Job) -> None:
        self.jobs[job.task.id] = job
        self.connection.send(job.task)

    def drop(self, job: Job) -> None:
        if self.jobs.pop(job.task.id, None) is not None and not self.closed:
            with contextlib.suppress(OSError):
                self.connection.send(job.task.id)

    async def close(self) -> None:
        """End it; who still waits is told that it is gone."""
        if not self.closed:
            self._disconnect()
            await self.loop.run_in_executor(None, self.end)

    def _disconnect(self) -> None:
        self.closed = True
        self.loop.remove_reader(self.connection.fileno())
        self.connection.close()
        for job in self.jobs.values():
            job.events.put_nowait(Event(job.task.id, "failed", "the process of the model ended"))
        self.jobs.clear()
        if not self.ready.done():
            self.ready.set_exception(FolderError("the process of the model ended before it was ready."))

    def _read(self) -> None:
        try:
            while not self.closed and self.connection.poll():
                self._take(self.connection.recv())
        except (EOFError, OSError):
            self._disconnect()
            self.lost(self)

    def _take(self, event: Event) -> None:
        if event.task:
            if job := self.jobs.get(event.task):
                job.events.put_nowait(event)
                if event.kind != "piece":
                    del self.jobs[event.task]
        elif event.kind == "counts":
            self.counted(event.value)
        elif not self.ready.done():
            if event.kind == "ready":
                self.card = event.value
                self.ready.set_result(None)
            else:
                self.ready.set_exception(FolderError(event.value))


class Engine:
    """A model by its name: asks the child that runs now, and replaces it when it dies or is to be reloaded."""

    def __init__(self, served: Served, start: START, queue: int = 512) -> None:
        self.served, self.start, self.queue = served, start, queue
        self.counted: Callable[[Counts], None] = lambda counts: None
        self.child: Child | None = None  # the one that is asked
        self.children: set[Child] = set()  # with those that are being loaded or finish what they have
        self.numbers = itertools.count(1)
        self.outstanding = 0  # sentences that are accepted and not done
        self.finished: deque[tuple[float, int]] = deque()
        self.stopping = False
        self.tasks: set[asyncio.Task[None]] = set()

    @property
    def card(self) -> dict[str, Any]:
        return self.child.card if self.child else {}

    @property
    def ready(self) -> bool:
        return self.child is not None

    async def load(self) -> None:
        """Start the model, or its successor; the one before finishes what it has. Raises what is wrong with it."""
        child = Child(self.start, self.served, self._lost, self.counted)
        self.children.add(child)
        try:
            await child.ready
        except FolderError:
            await self._close(child)
            raise
        before, self.child = self.child, child
        if before is not None:
            self._later(self._retire(before))

    async def close(self) -> None:
        self.stopping = True
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*(self._close(child) for child in list(self.children)))

    async def ask(self, asked: dict[str, Any], cost: int = 1) -> Any:
        """What the model makes of it, once it is done."""
        async for event in self.stream(asked, cost):
            if event.kind == "done":
                return event.value
        raise AssertionError("a stream ended without an end")

    async def stream(self, asked: dict[str, Any], cost: int = 1) -> AsyncIterator[Event]:
        """Pieces, and at last what is done; leaving early cancels it."""
        child = self._admit(cost)
        job = Job(Task(next(self.numbers), asked), cost)
        self.outstanding += cost
        try:
            child.give(job)
            while True:
                event = await job.events.get()
                if event.kind == "error":
                    raise SettingError(event.value)
                if event.kind == "failed":
                    log.error("a model failed", extra={"model": self.served.name, "reason": event.value})
                    raise RefusedError("failed", f"the model {self.served.name} failed on this request; try again.")
                yield event
                if event.kind == "done":
                    self.finished.append((time.monotonic(), cost))
                    return
        except OSError:
            raise RefusedError("loading", f"the model {self.served.name} is being started again; try again.") from None
        finally:
            self.outstanding -= cost
            child.drop(job)

    def wait(self) -> float:
        """Seconds that what is outstanding will take, by what was done of late."""
        now = time.monotonic()
        while self.finished and self.finished[0][0] < now - REMEMBERED:
            self.finished.popleft()
        if not self.finished:
            return 1.0
        done = sum(cost for _, cost in self.finished)
        return self.outstanding * max(now - self.finished[0][0], 0.1) / done

    def _admit(self, cost: int) -> Child:
        if self.child is None:
            raise RefusedError("loading", f"the model {self.served.name} is being loaded; try again.", 2)
        if self.outstanding and self.outstanding + cost > self.queue:
            raise RefusedError(
                "queue", f"the model {self.served.name} has too much to do; try again later.", self.wait()
            )
        return self.child

    def _lost(self, child: Child) -> None:
        """The process died: whoever waited for it is told, and another one is started."""
        self.children.discard(child)
        if child is self.child and not self.stopping:
            log.error("a model died and is started again", extra={"model": self.served.name})
            self.child = None
            self._later(self._revive())

    async def _revive(self) -> None:
        for pause in itertools.chain((0.0, 1.0, 5.0), itertools.repeat(30.0)):
            await asyncio.sleep(pause)
            try:
                await self.load()
                break
            except FolderError as error:
                log.error("a model cannot be loaded", extra={"model": self.served.name, "reason": str(error)})

    async def _retire(self, child: Child) -> None:
        while child.jobs:
            await asyncio.sleep(0.05)
        await self._close(child)

    async def _close(self, child: Child) -> None:
        self.children.discard(child)
        await child.close()

    def _later(self, coroutine: Any) -> None:
        task = asyncio.ensure_future(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


class Engines:
    """All models, by name and by language pair."""

    def __init__(self, engines: list[Engine]) -> None:
        self.by_name = {engine.served.name: engine for engine in engines}

    @property
    def ready(self) -> bool:
        return all(engine.ready for engine in self.by_name.values())

    async def load(self) -> None:
        await asyncio.gather(*(engine.load() for engine in self.by_name.values()))

    async def close(self) -> None:
        await asyncio.gather(*(engine.close() for engine in self.by_name.values()))

    def of(self, family: str) -> list[Engine]:
        return [engine for engine in self.by_name.values() if engine.card.get("family") == family]

    def translators(self, source: str | None = None, target: str | None = None) -> list[Engine]:
        """Translators from and to these languages, or any."""
        return [
            engine
            for engine in self.of("encoder-decoder")
            if engine.served.pair is not None
            and source in (None, engine.served.pair.source)
            and target in (None, engine.served.pair.target)
        ]
