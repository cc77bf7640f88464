"""The server's side of the pipes to the worker processes: starting models, sending requests, receiving events.

Everything here is asynchronous and computes nothing. It knows no HTTP.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import multiprocessing
import socket
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Any, NamedTuple

from heedful.errors import FolderError, SettingError
from heedful.serve import logs
from heedful.serve.messages import Counts, Event, MessageReader, WorkerTask, pack_messages
from heedful.serve.server_settings import ServedFolder

OVERLOADED = "a full queue; try again later."
THROUGHPUT_WINDOW_SECONDS = 30.0
# (the worker's end of the pipe, the model) -> a function that stops the worker
StartWorker = Callable[[socket.socket, ServedFolder], Callable[[], None]]


class UnavailableError(Exception):
    """The model cannot accept the request now; it may after `seconds`."""

    def __init__(self, reason: str, message: str, seconds: float = 1.0) -> None:
        super().__init__(message)
        self.reason, self.seconds = reason, max(1, min(120, math.ceil(seconds)))


def start_process(threads: int, precision: str, shortlist: bool) -> StartWorker:
    """Run each model in its own process."""

    def start(pipe: socket.socket, served: ServedFolder) -> Callable[[], None]:
        from heedful.serve.worker_process import run_worker  # the worker imports torch, the server does not

        context = multiprocessing.get_context("spawn")
        arguments = (pipe, served.folder, threads, precision, shortlist)
        worker = context.Process(target=run_worker, args=arguments, daemon=True)
        worker.start()
        pipe.close()

        def stop() -> None:
            worker.join(2)
            if worker.is_alive():
                worker.kill()
                worker.join()

        return stop

    return start


class PendingRequest(NamedTuple):
    """A task that a worker has not finished, and the callback for its events."""

    task: WorkerTask
    on_event: Callable[[Event], object]


class WorkerConnection(asyncio.Protocol):
    """The connection to one worker. Messages of one iteration of the event loop are sent together."""

    transport: asyncio.Transport | None = None  # set when connected

    def __init__(self, on_lost: Callable[[WorkerConnection], None], on_counts: Callable[[Counts], None]) -> None:
        self.pending: dict[int, PendingRequest] = {}
        self.info: dict[str, Any] = {}
        self.on_lost, self.on_counts = on_lost, on_counts
        self.stop: Callable[[], None] = lambda: None
        self.loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = self.loop.create_future()
        self.closed = False
        self.reader = MessageReader()
        self.outgoing: list[WorkerTask | int] = []

    async def start(self, start: StartWorker, served: ServedFolder) -> None:
        """Start the worker, connect, and wait until the model is loaded."""
        try:
            server_end, worker_end = socket.socketpair()
        except OSError as error:
            raise FolderError(f"the pipe to the model's process cannot be opened: {error.strerror}.") from None
        try:
            self.stop = start(worker_end, served)
        except OSError as error:
            server_end.close()
            worker_end.close()
            raise FolderError(f"the model's process cannot be started: {error.strerror}.") from None
        await self.loop.connect_accepted_socket(lambda: self, server_end)
        await self.ready

    def submit(self, request: PendingRequest) -> None:
        self.pending[request.task.id] = request
        self._send(request.task)

    def cancel(self, request: PendingRequest) -> None:
        if self.pending.pop(request.task.id, None) is not None:
            self._send(request.task.id)

    async def close(self) -> None:
        """Stop the worker; pending requests get a "failed" event."""
        if not self.closed:
            self._disconnect()
            await self.loop.run_in_executor(None, self.stop)

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        for event in self.reader(data):
            self._handle(event)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed:
            self._disconnect()
            self.on_lost(self)

    def _send(self, message: WorkerTask | int) -> None:
        if not self.outgoing:
            self.loop.call_soon(self._flush)
        self.outgoing.append(message)

    def _flush(self) -> None:
        outgoing, self.outgoing = self.outgoing, []
        if self.transport is not None and not self.closed:
            self.transport.write(pack_messages(outgoing))

    def _disconnect(self) -> None:
        self.closed = True
        if self.transport is not None:
            self.transport.close()
        for request in self.pending.values():
            request.on_event(Event(request.task.id, "failed", "the worker process ended"))
        self.pending.clear()
        if not self.ready.done():
            self.ready.set_exception(FolderError("the worker process ended before the model was loaded."))

    def _handle(self, event: Event) -> None:
        if event.task:
            if request := self.pending.get(event.task):
                request.on_event(event)
                if event.kind != "delta":
                    del self.pending[event.task]
        elif event.kind == "counts":
            self.on_counts(event.value)
        elif not self.ready.done():
            if event.kind == "ready":
                self.info = event.value
                self.ready.set_result(None)
            else:
                self.ready.set_exception(FolderError(event.value))


class ThroughputMeter:
    """Estimates how long the outstanding work takes, from the work finished recently."""

    def __init__(self) -> None:
        self.done: deque[tuple[float, int]] = deque()
        self.total = 0

    def add(self, cost: int) -> None:
        self._drop_old()
        self.done.append((time.monotonic(), cost))
        self.total += cost

    def seconds_for(self, outstanding: int) -> float:
        """Estimated seconds for the outstanding work."""
        self._drop_old()
        return outstanding * max(time.monotonic() - self.done[0][0], 0.1) / self.total if self.done else 1.0

    def _drop_old(self) -> None:
        oldest = time.monotonic() - THROUGHPUT_WINDOW_SECONDS
        while self.done and self.done[0][0] < oldest:
            self.total -= self.done.popleft()[1]


class ModelProcess:
    """A served model: sends requests to its current worker, and replaces the worker when it dies or is reloaded."""

    def __init__(self, served: ServedFolder, start: StartWorker, queue: int = 512) -> None:
        self.served, self.start, self.queue = served, start, queue
        self.on_counts: Callable[[Counts], None] = lambda counts: None
        self.worker: WorkerConnection | None = None  # receives new requests
        self.info: dict[str, Any] = {}  # the worker's description of the model; stays while it restarts
        self.workers: set[WorkerConnection] = set()  # including those that load or finish their last requests
        self.numbers = itertools.count(1)
        self.outstanding = 0  # sentences that are accepted and not finished
        self.throughput = ThroughputMeter()
        self.stopping = False
        self.tasks: set[asyncio.Task[None]] = set()

    @property
    def ready(self) -> bool:
        return self.worker is not None

    @property
    def full(self) -> bool:
        """Whether the queue is full."""
        return self.worker is not None and self.outstanding >= self.queue

    def wait(self) -> float:
        """Estimated seconds until the outstanding requests are finished."""
        return self.throughput.seconds_for(self.outstanding)

    async def load(self) -> None:
        """Start a worker, or replace the current one, which finishes its requests; FolderError if it cannot load."""
        if self.stopping:
            raise FolderError("the server is stopping.")
        worker = WorkerConnection(self._worker_lost, self.on_counts)
        self.workers.add(worker)
        try:
            await worker.start(self.start, self.served)
        except FolderError:
            await self._close(worker)
            raise
        for message, reason in worker.info.get("notices", {}).items():
            if reason:
                logs.log_event(message, "warning", model=self.served.name, reason=reason)
        previous, self.worker, self.info = self.worker, worker, worker.info
        if previous is not None:
            self._spawn(self._retire(previous))

    async def close(self) -> None:
        self.stopping = True
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*(self._close(worker) for worker in list(self.workers)))

    async def request(self, payload: dict[str, Any], cost: int = 1) -> Any:
        """Send a request and wait for its result; canceling this coroutine cancels the request."""
        result: asyncio.Future[Event] = asyncio.get_running_loop().create_future()

        def on_event(event: Event) -> None:
            if event.kind != "delta" and not result.done():  # it may be canceled
                result.set_result(event)

        worker, request = self._submit(payload, cost, on_event)
        try:
            return self._check_event(await result, cost).value
        finally:
            self._release(worker, request, cost)

    async def stream(self, payload: dict[str, Any], cost: int = 1) -> AsyncGenerator[Event, None]:
        """Send a request and yield its "delta" events and its "done" event; closing the iterator cancels it."""
        events: asyncio.Queue[Event] = asyncio.Queue()
        worker, request = self._submit(payload, cost, events.put_nowait)
        try:
            while True:
                event = self._check_event(await events.get(), cost)
                yield event
                if event.kind == "done":
                    return
        finally:
            self._release(worker, request, cost)

    def _submit(
        self, payload: dict[str, Any], cost: int, on_event: Callable[[Event], object]
    ) -> tuple[WorkerConnection, PendingRequest]:
        """Send a request to the current worker."""
        worker = self._admit(cost)
        request = PendingRequest(WorkerTask(next(self.numbers), payload), on_event)
        self.outstanding += cost
        worker.submit(request)
        return worker, request

    def _release(self, worker: WorkerConnection, request: PendingRequest, cost: int) -> None:
        """Cancel the request if it is not finished."""
        self.outstanding -= cost
        worker.cancel(request)

    def _check_event(self, event: Event, cost: int) -> Event:
        """Raise the error of an "error" or "failed" event; return any other event."""
        if event.kind == "error":
            raise SettingError(event.value)
        if event.kind == "failed":
            logs.log_event("model failed on a request", "error", model=self.served.name, reason=event.value)
            raise UnavailableError("failed", f"the model {self.served.name} failed on this request; try again.")
        if event.kind == "done":
            self.throughput.add(cost)
        return event

    def _admit(self, cost: int) -> WorkerConnection:
        if self.worker is None:
            raise UnavailableError("loading", f"the model {self.served.name} is being loaded; try again.", 2)
        if self.outstanding and self.outstanding + cost > self.queue:
            raise UnavailableError("queue", f"the model {self.served.name} has {OVERLOADED}", self.wait())
        return self.worker

    def _worker_lost(self, worker: WorkerConnection) -> None:
        """The worker process died, and its requests have failed: start another one."""
        self.workers.discard(worker)
        if worker is self.worker and not self.stopping:
            logs.log_event("worker process died, restarting", "error", model=self.served.name)
            self.worker = None
            self._spawn(self._restart())

    async def _restart(self) -> None:
        for pause in itertools.chain((0.0, 1.0, 5.0), itertools.repeat(30.0)):
            await asyncio.sleep(pause)
            try:
                await self.load()
                break
            except FolderError as error:
                logs.log_event("model cannot be loaded", "error", model=self.served.name, reason=str(error))

    async def _retire(self, worker: WorkerConnection) -> None:
        while worker.pending:
            await asyncio.sleep(0.05)
        await self._close(worker)

    async def _close(self, worker: WorkerConnection) -> None:
        self.workers.discard(worker)
        await worker.close()

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.ensure_future(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


class ModelProcesses:
    """All served models, by name or language pair."""

    def __init__(self, models: list[ModelProcess]) -> None:
        self.by_name = {model.served.name: model for model in models}

    @property
    def ready(self) -> bool:
        return all(model.ready for model in self.by_name.values())

    @property
    def full(self) -> bool:
        """Whether the queues of all models are full."""
        return all(model.full for model in self.by_name.values())

    def unavailable_error(self) -> UnavailableError:
        """The error to raise if `full`."""
        seconds = min(model.wait() for model in self.by_name.values())
        return UnavailableError("queue", f"every model here has {OVERLOADED}", seconds)

    async def load(self) -> None:
        await asyncio.gather(*(model.load() for model in self.by_name.values()))

    async def close(self) -> None:
        await asyncio.gather(*(model.close() for model in self.by_name.values()))

    def translators(self, source: str | None = None, target: str | None = None) -> list[ModelProcess]:
        """Translators for these languages; None is any language."""
        return [
            model
            for model in self.by_name.values()
            if (pair := model.served.pair) is not None
            and (source is None or source == pair.source)
            and (target is None or target == pair.target)
            and model.info.get("task") == "translate"
        ]
