"""Starts and stops the server: settings -> models and uvicorn; SIGTERM finishes all accepted requests first."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import gc
import signal
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from heedful.errors import HeedfulError, SettingError
from heedful.serve import logs
from heedful.serve.model_process import ModelProcess, ModelProcesses, StartWorker, start_process
from heedful.serve.routes import build_app
from heedful.serve.server_settings import ServerSettings, read_keys
from heedful.serve.state import ServerState

GC_THRESHOLD = 20_000  # allocations between garbage collections; requests leave no reference cycles
BACKLOG = 2048  # connections that wait to be accepted
KEEP_ALIVE_SECONDS = 15  # an idle connection is closed after this
UNREAD_TIMEOUT_SECONDS = 60.0  # the kernel closes a connection whose client has read nothing for this long
NOT_READY_SECONDS = 1.0  # from /ready answering 503 to the end of accepting connections
LINGER_SECONDS = 0.5  # after that, open connections may still send a request
FIRST_REQUEST_SECONDS = 3.0  # and new connections, which the client has opened for a request, wait for it longer
SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27  # of Linux; the module socket does not have them
DROP_ALL = struct.pack("HBBI", 0x06, 0, 0, 0)  # a classic BPF program of one instruction: keep 0 bytes of a packet


def make_state(settings: ServerSettings, start: StartWorker | None = None) -> ServerState:
    """The server's state, with models that are not loaded yet."""
    start = start or start_process(settings.threads, settings.precision, settings.shortlist)
    models = [ModelProcess(served, start, settings.limits.queue) for served in settings.models]
    state = ServerState(settings, ModelProcesses(models), settings.keys)
    for model in models:
        state.metrics.watch(model)
    return state


class Server(uvicorn.Server):
    """uvicorn with a graceful end: /ready answers 503 for a moment before the server stops listening."""

    def __init__(self, state: ServerState) -> None:
        self.state = state
        super().__init__(
            uvicorn.Config(
                build_app(state),
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=BACKLOG,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                h11_max_incomplete_event_size=state.settings.limits.max_headers,
                timeout_graceful_shutdown=self._graceful_seconds(),
            )
        )
        state.metrics.connections.set_function(lambda: len(self.server_state.connections))

    def _notice(self) -> float:
        return min(NOT_READY_SECONDS, self.state.settings.limits.drain / 4)

    def _linger(self) -> tuple[float, float]:
        drain = self.state.settings.limits.drain
        return min(LINGER_SECONDS, drain / 8), min(FIRST_REQUEST_SECONDS, drain / 4)

    def _graceful_seconds(self) -> int:
        return max(1, round(self.state.settings.limits.drain - self._notice() - sum(self._linger())))

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT start draining instead of ending the process."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(ValueError, RuntimeError):  # only the main thread can handle signals
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self.drain, number)
        yield

    def drain(self, number: int = signal.SIGTERM, frame: FrameType | None = None) -> None:
        """Answer /ready with 503, then stop accepting connections, then end. A second Ctrl-C ends at once."""
        if self.state.draining:
            self.should_exit = True
            self.force_exit = number == signal.SIGINT
            return
        self.state.draining = True
        logs.log_event("server is draining", seconds=self.state.settings.limits.drain)
        asyncio.get_running_loop().call_later(self._notice(), setattr, self, "should_exit", True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, but leave accepted connections a moment to send their request."""
        waiting = [connection for listener in sockets or () for connection in accept_last(listener)]
        for server in self.servers:
            server.close()
        for connection in waiting:
            await asyncio.get_running_loop().connect_accepted_socket(self._create_protocol, connection)
        if not self.force_exit:
            await self._wait_for_requests()
        await super().shutdown(sockets)

    async def _wait_for_requests(self) -> None:
        for_all, for_new = self._linger()
        await asyncio.sleep(for_all)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(for_new):
                while not self.force_exit and any(
                    getattr(item, "cycle", None) is None for item in self.server_state.connections
                ):
                    await asyncio.sleep(0.02)

    def _create_protocol(self) -> asyncio.Protocol:
        """What uvicorn creates for a connection."""
        return self.config.http_protocol_class(
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,  # type: ignore[call-arg]
        )


def accept_last(listener: socket.socket) -> list[socket.socket]:
    """Accept what waits in the backlog of a non-blocking socket; the kernel resets it when the socket is closed.

    On Linux no connection joins the backlog any more: the client of a dropped packet tries again in a second, and is
    refused, which it can tell from a request that was lost. A connection that was established in the same instant has
    inherited the filter; without it, what its client sends again arrives.
    """
    if sys.platform == "linux":
        program = ctypes.create_string_buffer(DROP_ALL)
        with contextlib.suppress(OSError):  # where the kernel has no socket filters
            listener.setsockopt(
                socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HP", len(DROP_ALL) // 8, ctypes.addressof(program))
            )
    connections = []
    with contextlib.suppress(OSError):  # none is left
        while True:
            connections.append(listener.accept()[0])
    if sys.platform == "linux":
        for connection in connections:
            with contextlib.suppress(OSError):  # most have no filter
                connection.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
    return connections


def bind_socket(host: str, port: int) -> socket.socket:
    """A bound TCP socket that does not listen yet."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio disables Nagle's algorithm only if the protocol is given; otherwise a response may take 40 ms longer
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux only; connections inherit it
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1000 * UNREAD_TIMEOUT_SECONDS))
    try:
        listening.bind((host, port))
    except (OSError, OverflowError) as error:
        listening.close()
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise SettingError(f"port {port} of {host} is in use; choose another with --port.") from None
        reason = getattr(error, "strerror", None) or str(error)
        raise SettingError(f"cannot listen on {host} port {port}: {reason}.") from None
    return listening


async def serve(settings: ServerSettings, keys: Path | None = None, started: Callable[[str], Any] = print) -> None:
    """Serve until SIGTERM or SIGINT; SIGHUP reloads models and keys."""
    listening = bind_socket(settings.host, settings.port)
    state = make_state(settings)
    server = Server(state)
    loop = asyncio.get_running_loop()
    reloading: set[asyncio.Task[None]] = set()

    def hang_up() -> None:
        task = asyncio.ensure_future(reload_models(state, keys))
        reloading.add(task)
        task.add_done_callback(reloading.discard)

    try:
        loop.add_signal_handler(signal.SIGHUP, lambda: None)  # the models are being loaded anyway
        await state.models.load()
        loop.add_signal_handler(signal.SIGHUP, hang_up)
        gc.freeze()  # imported objects stay; scanning them would delay all requests
        gc.set_threshold(GC_THRESHOLD)
        listening.listen(BACKLOG)  # from now on no connection is refused; accepting starts a moment later
        host, port = listening.getsockname()[:2]
        name = f"[{host}]" if ":" in host else host
        started(f"http://{name}:{port}")
        await server.serve(sockets=[listening])
    finally:
        listening.close()
        for task in reloading:
            task.cancel()
        await state.models.close()
    logs.log_event("server stopped")


async def reload_models(state: ServerState, keys: Path | None) -> None:
    """Load models and keys from disk again; one that cannot be loaded stays as it is."""
    try:
        state.keys = read_keys(keys)
    except HeedfulError as error:
        logs.log_event("API keys not reloaded", "error", reason=str(error))
    for model in state.models.by_name.values():
        try:
            await model.load()
            logs.log_event("model reloaded", model=model.served.name)
        except HeedfulError as error:
            logs.log_event("model not reloaded", "error", model=model.served.name, reason=str(error))


def run(settings: ServerSettings, keys: Path | None = None, started: Callable[[str], Any] = print) -> None:
    """Run `serve` with a log on standard error."""
    logs.start_logging()
    try:
        asyncio.run(serve(settings, keys, started))
    finally:
        logs.flush()
