"""From settings to a server that runs until it is told to end, and ends without losing what it accepted."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from heedful.errors import HeedfulError, SettingError
from heedful.serve import logs
from heedful.serve.model_process import START, ModelProcess, ModelProcesses, start_process
from heedful.serve.routes import build
from heedful.serve.server_settings import ServerSettings, read_keys
from heedful.serve.state import ServerState

GARBAGE = 20_000  # objects more than before that are worth a look for cycles among them; requests leave none
BACKLOG = 2048  # connections that wait to be accepted
KEEP_ALIVE = 15  # seconds without a request after which a connection is closed
UNREAD = 60.0  # seconds after which the kernel ends a connection whose client takes nothing of what was sent
NOTICE = 1.0  # seconds between saying that we are not ready and taking no more connections
LINGER = 0.5  # seconds that a connection without a request may still bring one after that


def make_state(settings: ServerSettings, start: START | None = None) -> ServerState:
    """The server with its models, none of which is loaded yet."""
    start = start or start_process(settings.threads, settings.precision, settings.shortlist)
    engines = [ModelProcess(served, start, settings.limits.queue) for served in settings.models]
    state = ServerState(settings, ModelProcesses(engines), settings.keys)
    for engine in engines:
        state.metrics.watch(engine)
    return state


class Server(uvicorn.Server):
    """uvicorn, which says that it is not ready some time before it stops to listen."""

    def __init__(self, state: ServerState) -> None:
        self.state = state
        super().__init__(
            uvicorn.Config(
                build(state),
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=BACKLOG,
                timeout_keep_alive=KEEP_ALIVE,
                h11_max_incomplete_event_size=state.settings.limits.headers,
                timeout_graceful_shutdown=max(1, round(state.settings.drain - self._notice() - LINGER)),
            )
        )
        state.metrics.connections.set_function(lambda: len(self.server_state.connections))

    def _notice(self) -> float:
        return min(NOTICE, self.state.settings.drain / 4)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals begin the end; they do not end the process by themselves."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(ValueError, RuntimeError):  # in another thread than the main one there are none
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self.drain, number)
        yield

    def drain(self, number: int = signal.SIGTERM, frame: FrameType | None = None) -> None:
        """No longer ready; soon no new connections; then the end. A second Ctrl-C does not wait."""
        if self.state.draining:
            self.should_exit = True
            self.force_exit = number == signal.SIGINT
            return
        self.state.draining = True
        logs.say("draining", seconds=self.state.settings.drain)
        asyncio.get_running_loop().call_later(self._notice(), setattr, self, "should_exit", True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop to listen; connections that were accepted have a moment to bring the request that is on its way."""
        for server in self.servers:
            server.close()
        if not self.force_exit:
            await asyncio.sleep(min(LINGER, self.state.settings.drain / 8))
        await super().shutdown(sockets)


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens as soon as it is asked to."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # with the protocol named, asyncio turns Nagle's algorithm off; else every answer could take 40 ms more
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # of Linux; connections inherit it
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1000 * UNREAD))
    try:
        listening.bind((host, port))
    except (OSError, OverflowError) as error:
        listening.close()
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise SettingError(f"port {port} of {host} is in use; choose another with --port.") from None
        reason = getattr(error, "strerror", None) or str(error)
        raise SettingError(f"{host} port {port} cannot be listened on: {reason}.") from None
    return listening


async def serve(settings: ServerSettings, keys: Path | None = None, started: Callable[[str], Any] = print) -> None:
    """Serve until a signal says that it is enough; SIGHUP loads models and keys again."""
    listening = bind(settings.host, settings.port)
    state = make_state(settings)
    server = Server(state)
    loop = asyncio.get_running_loop()
    reloading: set[asyncio.Task[None]] = set()

    def hang_up() -> None:
        task = asyncio.ensure_future(reload(state, keys))
        reloading.add(task)
        task.add_done_callback(reloading.discard)

    try:
        loop.add_signal_handler(signal.SIGHUP, lambda: None)  # what is being loaded is new
        await state.engines.load()
        loop.add_signal_handler(signal.SIGHUP, hang_up)
        gc.freeze()  # what was imported stays: looking through it again and again would hold up all requests
        gc.set_threshold(GARBAGE)
        listening.listen(BACKLOG)  # from now on nobody is refused, though accepting begins a moment later
        host, port = listening.getsockname()[:2]
        name = f"[{host}]" if ":" in host else host
        started(f"http://{name}:{port}")
        await server.serve(sockets=[listening])
    finally:
        listening.close()
        for task in reloading:
            task.cancel()
        await state.engines.close()
    logs.say("ended")


async def reload(state: ServerState, keys: Path | None) -> None:
    """The models and keys as they are on disk now; what cannot be read stays as it was."""
    try:
        state.keys = read_keys(keys)
    except HeedfulError as error:
        logs.say("keys stay as they were", "error", reason=str(error))
    for engine in state.engines.by_name.values():
        try:
            await engine.load()
            logs.say("reloaded", model=engine.served.name)
        except HeedfulError as error:
            logs.say("a model stays as it was", "error", model=engine.served.name, reason=str(error))


def run(settings: ServerSettings, keys: Path | None = None, started: Callable[[str], Any] = print) -> None:
    """`serve`, with a log on standard error."""
    logs.begin()
    try:
        asyncio.run(serve(settings, keys, started))
    finally:
        logs.flush()
