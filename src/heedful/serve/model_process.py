"""The server's end of the pipes: which models there are, what they are asked, and what becomes of it.

Nothing here computes or waits for a computation, so nothing here keeps a request waiting. It knows no HTTP.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import multiprocessing
import socket
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

from heedful.errors import FolderError, SettingError
from heedful.serve import logs
from heedful.serve.messages import Counts, Event, MessageReader, WorkerTask, packed
from heedful.serve.server_settings import ServedFolder

TOO_MUCH = "too much to do; try again later."
REMEMBERED = 30.0  # seconds of finished work that the rate is estimated from
START = Callable[[socket.socket, ServedFolder], Callable[[], None]]  # its end of the pipe, a model -> what ends it


class RefusedError(Exception):
    """The model cannot take this now; it may in some seconds."""

    def __init__(self, reason: str, message: str, seconds: float = 1.0) -> None:
        super().__init__(message)
        self.reason, self.seconds = reason, max(1, min(120, math.ceil(seconds)))


def start_process(threads: int, precision: str, shortlist: bool) -> START:
    """Models in processes of their own."""

    def start(pipe: socket.socket, served: ServedFolder) -> Callable[[], None]:
        from heedful.serve.worker_process import process  # the model's side; torch is imported there, and not here

        context = multiprocessing.get_context("spawn")
        asked = (pipe, served.folder, threads, precision, shortlist)
        child = context.Process(target=process, args=asked, daemon=True)
        child.start()
        pipe.close()

        def end() -> None:
            child.join(2)
            if child.is_alive():
                child.kill()
                child.join()

        return end

    return start


def start_thread(pipe: socket.socket, served: ServedFolder) -> Callable[[], None]:
    """Models in threads of this process: for tests, and where processes cannot be started."""
    from heedful.serve.worker import serve

    def run() -> None:
        with pipe:
            serve(pipe, served.folder)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return lambda: thread.join(5)


class Job(NamedTuple):
    """A task, and who waits to be told of it."""

    task: WorkerTask
    tell: Callable[[Event], object]


class WorkerConnection(asyncio.Protocol):
    """One running model: its pipe and the jobs that it has. What is sent to it at once goes at once."""

    transport: asyncio.Transport | None = None  # once it is connected

    def __init__(self, lost: Callable[[WorkerConnection], None], counted: Callable[[Counts], None]) -> None:
        self.jobs: dict[int, Job] = {}
        self.card: dict[str, Any] = {}
        self.lost, self.counted = lost, counted
        self.end: Callable[[], None] = lambda: None
        self.loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = self.loop.create_future()
        self.closed = False
        self.unpacked = MessageReader()
        self.outgoing: list[WorkerTask | int] = []

    async def begin(self, start: START, served: ServedFolder) -> None:
        """Connect, and wait until the model is loaded."""
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise FolderError(f"there is no pipe for its process: {error.strerror}.") from None
        try:
            self.end = start(theirs, served)
        except OSError as error:
            ours.close()
            theirs.close()
            raise FolderError(f"its process cannot be started: {error.strerror}.") from None
        await self.loop.connect_accepted_socket(lambda: self, ours)
        await self.ready

    def give(self, job: Job) -> None:
        self.jobs[job.task.id] = job
        self._send(job.task)

    def drop(self, job: Job) -> None:
        if self.jobs.pop(job.task.id, None) is not None:
            self._send(job.task.id)

    async def close(self) -> None:
        """End it; who still waits is told that it is gone."""
        if not self.closed:
            self._disconnect()
            await self.loop.run_in_executor(None, self.end)

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        for event in self.unpacked(data):
            self._take(event)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed:
            self._disconnect()
            self.lost(self)

    def _send(self, message: WorkerTask | int) -> None:
        if not self.outgoing:
            self.loop.call_soon(self._flush)
        self.outgoing.append(message)

    def _flush(self) -> None:
        outgoing, self.outgoing = self.outgoing, []
        if self.transport is not None and not self.closed:
            self.transport.write(packed(outgoing))

    def _disconnect(self) -> None:
        self.closed = True
        if self.transport is not None:
            self.transport.close()
        for job in self.jobs.values():
            job.tell(Event(job.task.id, "failed", "the process of the model ended"))
        self.jobs.clear()
        if not self.ready.done():
            self.ready.set_exception(FolderError("the process of the model ended before it was ready."))

    def _take(self, event: Event) -> None:
        if event.task:
            if job := self.jobs.get(event.task):
                job.tell(event)
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


class ThroughputMeter:
    """How much was done of late, and how long more of it will take."""

    def __init__(self) -> None:
        self.done: deque[tuple[float, int]] = deque()
        self.total = 0

    def add(self, cost: int) -> None:
        self._forget()
        self.done.append((time.monotonic(), cost))
        self.total += cost

    def seconds(self, outstanding: int) -> float:
        """Seconds that what is outstanding will take."""
        self._forget()
        return outstanding * max(time.monotonic() - self.done[0][0], 0.1) / self.total if self.done else 1.0

    def _forget(self) -> None:
        long_ago = time.monotonic() - REMEMBERED
        while self.done and self.done[0][0] < long_ago:
            self.total -= self.done.popleft()[1]


class ModelProcess:
    """A model by its name: asks the child that runs now, and replaces it when it dies or is to be reloaded."""

    def __init__(self, served: ServedFolder, start: START, queue: int = 512) -> None:
        self.served, self.start, self.queue = served, start, queue
        self.counted: Callable[[Counts], None] = lambda counts: None
        self.child: WorkerConnection | None = None  # the one that is asked
        self.card: dict[str, Any] = {}  # what it said of itself, and is still true while it is started again
        self.children: set[WorkerConnection] = set()  # with those that are being loaded or finish what they have
        self.numbers = itertools.count(1)
        self.outstanding = 0  # sentences that are accepted and not done
        self.pace = ThroughputMeter()
        self.stopping = False
        self.tasks: set[asyncio.Task[None]] = set()

    @property
    def ready(self) -> bool:
        return self.child is not None

    @property
    def full(self) -> bool:
        """Whether it could not take one sentence more."""
        return self.child is not None and self.outstanding >= self.queue

    def wait(self) -> float:
        """Seconds that what it has will take."""
        return self.pace.seconds(self.outstanding)

    async def load(self) -> None:
        """Start the model, or its successor; the one before finishes what it has. Raises what is wrong with it."""
        if self.stopping:
            raise FolderError("the server ends.")
        child = WorkerConnection(self._lost, self.counted)
        self.children.add(child)
        try:
            await child.begin(self.start, self.served)
        except FolderError:
            await self._close(child)
            raise
        before, self.child, self.card = self.child, child, child.card
        if before is not None:
            self._later(self._retire(before))

    async def close(self) -> None:
        self.stopping = True
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*(self._close(child) for child in list(self.children)))

    async def ask(self, asked: dict[str, Any], cost: int = 1) -> Any:
        """What the model makes of it, once it is done; leaving early cancels it."""
        told: asyncio.Future[Event] = asyncio.get_running_loop().create_future()

        def tell(event: Event) -> None:
            if not told.done():  # or cancelled
                told.set_result(event)

        child, job = self._give(asked, cost, tell)
        try:
            return self._checked(await told, cost).value
        finally:
            self._take_back(child, job, cost)

    async def stream(self, asked: dict[str, Any], cost: int = 1) -> AsyncIterator[Event]:
        """Pieces, and at last what is done; leaving early cancels it."""
        told: asyncio.Queue[Event] = asyncio.Queue()
        child, job = self._give(asked, cost, told.put_nowait)
        try:
            while True:
                event = self._checked(await told.get(), cost)
                yield event
                if event.kind == "done":
                    return
        finally:
            self._take_back(child, job, cost)

    def _give(self, asked: dict[str, Any], cost: int, tell: Callable[[Event], object]) -> tuple[WorkerConnection, Job]:
        """From now on the model has it."""
        child = self._admit(cost)
        job = Job(WorkerTask(next(self.numbers), asked), tell)
        self.outstanding += cost
        child.give(job)
        return child, job

    def _take_back(self, child: WorkerConnection, job: Job, cost: int) -> None:
        """What becomes of it is of no interest any more."""
        self.outstanding -= cost
        child.drop(job)

    def _checked(self, event: Event, cost: int) -> Event:
        """What the model said, unless it is that something went wrong."""
        if event.kind == "error":
            raise SettingError(event.value)
        if event.kind == "failed":
            logs.say("a model failed", "error", model=self.served.name, reason=event.value)
            raise RefusedError("failed", f"the model {self.served.name} failed on this request; try again.")
        if event.kind == "done":
            self.pace.add(cost)
        return event

    def _admit(self, cost: int) -> WorkerConnection:
        if self.child is None:
            raise RefusedError("loading", f"the model {self.served.name} is being loaded; try again.", 2)
        if self.outstanding and self.outstanding + cost > self.queue:
            raise RefusedError("queue", f"the model {self.served.name} has {TOO_MUCH}", self.wait())
        return self.child

    def _lost(self, child: WorkerConnection) -> None:
        """The process died: whoever waited for it is told, and another one is started."""
        self.children.discard(child)
        if child is self.child and not self.stopping:
            logs.say("a model died and is started again", "error", model=self.served.name)
            self.child = None
            self._later(self._revive())

    async def _revive(self) -> None:
        for pause in itertools.chain((0.0, 1.0, 5.0), itertools.repeat(30.0)):
            await asyncio.sleep(pause)
            try:
                await self.load()
                break
            except FolderError as error:
                logs.say("a model cannot be loaded", "error", model=self.served.name, reason=str(error))

    async def _retire(self, child: WorkerConnection) -> None:
        while child.jobs:
            await asyncio.sleep(0.05)
        await self._close(child)

    async def _close(self, child: WorkerConnection) -> None:
        self.children.discard(child)
        await child.close()

    def _later(self, coroutine: Any) -> None:
        task = asyncio.ensure_future(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


class ModelProcesses:
    """All models, by name and by language pair."""

    def __init__(self, engines: list[ModelProcess]) -> None:
        self.by_name = {engine.served.name: engine for engine in engines}

    @property
    def ready(self) -> bool:
        return all(engine.ready for engine in self.by_name.values())

    @property
    def full(self) -> bool:
        """Whether nobody could take one sentence more."""
        return all(engine.full for engine in self.by_name.values())

    def refusal(self) -> RefusedError:
        """What is to be said then."""
        seconds = min(engine.wait() for engine in self.by_name.values())
        return RefusedError("queue", f"every model here has {TOO_MUCH}", seconds)

    async def load(self) -> None:
        await asyncio.gather(*(engine.load() for engine in self.by_name.values()))

    async def close(self) -> None:
        await asyncio.gather(*(engine.close() for engine in self.by_name.values()))

    def of(self, family: str) -> list[ModelProcess]:
        return [engine for engine in self.by_name.values() if engine.card.get("family") == family]

    def translators(self, source: str | None = None, target: str | None = None) -> list[ModelProcess]:
        """Translators from and to these languages, or any."""
        return [
            engine
            for engine in self.by_name.values()
            if (pair := engine.served.pair) is not None
            and (source is None or source == pair.source)
            and (target is None or target == pair.target)
            and engine.card.get("family") == "encoder-decoder"
        ]
