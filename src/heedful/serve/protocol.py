"""Connections before they are requests: how many an address may hold, how much it may say, and how slowly."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import urllib.parse
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import httptools
import uvicorn
from starlette.types import ASGIApp, Scope
from uvicorn.server import ServerState

from heedful.serve.alarms import Alarms
from heedful.serve.exchange import ASGI, STATUS, Exchange, Header, announced, expects
from heedful.serve.metrics import Metrics
from heedful.serve.settings import Limits

UPGRADE = re.compile(rb"\r\nupgrade:", re.IGNORECASE)
WRITING = 60.0  # seconds that a client may take to read what waits for it
LINGERING = 0.5  # seconds that one who is still speaking has to hear the answer


class Doors:
    """What all connections share; called for each that comes, as uvicorn calls a protocol."""

    def __init__(
        self, limits: Limits, metrics: Metrics, alarms: Alarms, refuse: Callable[[bytes], bytes | None]
    ) -> None:
        self.limits, self.metrics, self.alarms = limits, metrics, alarms
        self.refuse = refuse  # what it has to say to a POST at once is its answer
        self.holding: Counter[str] = Counter()

    def __call__(self, *, config: uvicorn.Config, server_state: ServerState, **_: Any) -> Connection:
        return Connection(self, config.loaded_app, server_state, config.timeout_keep_alive)


class Connection(asyncio.Protocol):
    """A client that asks one thing after the other."""

    transport: asyncio.Transport

    def __init__(self, doors: Doors, app: Any, server: ServerState, kept: float) -> None:
        self.doors, self.limits, self.server, self.kept = doors, doors.limits, server, kept
        self.app: ASGIApp = app
        self.loop = asyncio.get_running_loop()
        self.parser = httptools.HttpRequestParser(self)
        with contextlib.suppress(AttributeError):  # of older versions: what follows a last request is passed over
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.client: tuple[str, int] | None = None
        self.address = ""
        self.url = b""
        self.headers: list[Header] = []
        self.size = 0  # of them, in bytes
        self.exchange: Exchange | None = None  # the last that began to come in
        self.answering: Exchange | None = None
        self.waiting: deque[Exchange] = deque()  # those that came before that was answered
        self.refusal: bytes | None = None  # the answer to what is being received
        self.beside = 0  # bytes since the last request or piece of a body that belong to none
        self.deaf = False  # it was told that it is no longer listened to
        self.slow: asyncio.TimerHandle | None = None  # ends a connection that says nothing
        self.full: asyncio.TimerHandle | None = None  # ends a connection that reads nothing
        self.writable: asyncio.Event | None = None

    # ---- coming and going

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self.server.connections.add(self)  # type: ignore[arg-type]
        client = transport.get_extra_info("peername")
        if isinstance(client, tuple):
            self.client = client[0], client[1]
            self.address = client[0]
        self.doors.holding[self.address] += 1
        self.doors.metrics.connections.inc()
        _give_up_on_silence(transport, self.limits.receiving)
        if 0 < self.limits.connections < self.doors.holding[self.address]:
            self.doors.metrics.rejected("connections").inc()
            self._say(429, f"this address holds more than {self.limits.connections} connections; close some.")
            return
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.connections.discard(self)
        self.doors.alarms.off(self)
        self._unwatch()
        self.resume_writing()
        self.doors.metrics.connections.dec()
        self.doors.holding[self.address] -= 1
        if not self.doors.holding[self.address]:
            del self.doors.holding[self.address]
        if self.answering is not None:
            self.answering.lose()

    def shutdown(self) -> None:
        """The server ends: so does this, as soon as what was asked is answered."""
        if self.exchange is None or self.exchange.done:
            self.transport.close()
        else:
            self.exchange.keep = False

    # ---- hearing

    def data_received(self, data: bytes) -> None:
        if self.deaf:
            return
        self.doors.alarms.off(self)
        if self.exchange is None or self.exchange.heard:  # these are headers
            data = _without_upgrade(data)
        self.beside += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # which it gets no answer to but that of the route
        except httptools.HttpParserError:
            self._not_understood()
        if self.beside > self.limits.headers and not self.deaf:
            self._not_understood()
        if self._unheeded():
            self._watch()
        else:
            self._unwatch()

    def _unheeded(self) -> bool:
        """Whether a part of a request has come whose rest nobody waits for."""
        if self.refusal is not None:
            return True
        if self.exchange is not None and not self.exchange.done:
            return False
        return self.beside > 0 or (self.exchange is not None and not self.exchange.heard)

    def on_message_begin(self) -> None:
        self.url, self.headers, self.size = b"", [], 0

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))
        self.size += len(name) + len(value) + 4

    def on_headers_complete(self) -> None:
        if self.size + len(self.url) > self.limits.headers:
            self.beside = self.limits.headers + 1
            raise ValueError("too many headers")  # which the parser turns into an error of its own
        headers = dict(self.headers)
        waits = self.exchange is not None and not self.exchange.done
        self.refusal = None if waits else self._refusal(headers)
        if self.refusal is not None:
            return
        self.exchange = self._exchange(headers)
        if waits:
            self.waiting.append(self.exchange)
            self.transport.pause_reading()
        else:
            self._answer(self.exchange)

    def _refusal(self, headers: dict[bytes, bytes]) -> bytes | None:
        """An answer that needs no look at the body, if that is small."""
        length = announced(headers)
        small = length is not None and length <= self.limits.body and not expects(headers)
        return self.doors.refuse(self.url) if small and self.parser.get_method() == b"POST" else None

    def _exchange(self, headers: dict[bytes, bytes]) -> Exchange:
        url, version = httptools.parse_url(self.url), self.parser.get_http_version()
        path = url.path.decode("ascii")
        scope: Scope = {
            "type": "http",
            "asgi": ASGI,
            "http_version": version,
            "method": self.parser.get_method().decode("ascii"),
            "path": urllib.parse.unquote(path) if "%" in path else path,
            "query_string": url.query or b"",
            "headers": self.headers,
            "client": self.client,
        }
        keep = version != "1.0" and self.parser.should_keep_alive()
        scope["exchange"] = exchange = Exchange(self, scope, headers, self.limits.body, keep)
        return exchange

    def on_body(self, body: bytes) -> None:
        self.beside = 0
        if self.refusal is None and self.exchange is not None and not self.exchange.done:
            self.exchange.take(body)

    def on_message_complete(self) -> None:
        self.beside = 0
        if self.refusal is None:
            if self.exchange is not None:
                self.exchange.end()
            return
        self.transport.write(self.refusal)
        self.refusal = None
        if self.parser.should_keep_alive():
            self.answered()
        else:
            self.transport.close()

    # ---- answering

    def _answer(self, exchange: Exchange) -> None:
        self.answering = exchange
        exchange.task = self.loop.create_task(self._run(exchange))
        self.server.tasks.add(exchange.task)

    async def _run(self, exchange: Exchange) -> None:
        try:
            await self.app(exchange.scope, exchange.receive, exchange.send)
        except asyncio.CancelledError:
            if not exchange.status:
                self._say(503, "the server ended before this was done.")
        finally:
            if not exchange.done:
                self.transport.close()
            self.server.tasks.discard(exchange.task)

    def answered(self) -> None:
        """What was asked has its answer: the next, if it is here already."""
        if self.deaf or self.transport.is_closing():
            return
        if self.waiting:
            self._answer(self.waiting.popleft())
            if not self.waiting:
                self.transport.resume_reading()
        else:
            self.doors.alarms.set(self, self.kept, self.transport.close)

    def hang_up(self, heard: bool) -> None:
        """End after the last answer; to close on one who is still speaking would take it away from him."""
        self.deaf = True
        if heard:
            self.transport.close()
        else:
            with contextlib.suppress(OSError):  # the client is gone
                self.transport.write_eof()
            self.doors.alarms.set(self, LINGERING, self.transport.close)

    def usual(self) -> list[Header]:
        return self.server.default_headers

    def pause_writing(self) -> None:
        self.writable = asyncio.Event()
        self.full = self.loop.call_later(WRITING, self.transport.abort)

    def resume_writing(self) -> None:
        if self.writable is not None and self.full is not None:
            self.writable.set()
            self.full.cancel()
        self.writable = self.full = None

    def _not_understood(self) -> None:
        if self.beside > self.limits.headers:
            self.doors.metrics.rejected("headers").inc()
            return self._say(431, f"the headers have more than {self.limits.headers:,} bytes.")
        return self._say(400, "this is not a valid HTTP request.")

    def _say(self, status: int, message: str) -> None:
        self.deaf = True
        if self.exchange is not None and not self.exchange.heard and self.exchange.status:
            return self.transport.abort()  # it has its answer already
        body = json.dumps({"error": message}).encode()
        head = [
            b"content-type: application/json",
            b"content-length: %d" % len(body),
            b"connection: close",
            *([b"retry-after: 5"] if status in (429, 503) else []),
        ]
        self.transport.write(STATUS[status] + b"\r\n".join([*head, b"", body]))
        if self.answering is not None:
            self.answering.lose()  # nothing can follow this
        return self.hang_up(heard=False)

    def _watch(self) -> None:
        """From now on a request has to come before long."""
        if self.slow is None:
            self.slow = self.loop.call_later(self.limits.receiving, self.transport.abort)

    def _unwatch(self) -> None:
        if self.slow is not None:
            self.slow.cancel()
            self.slow = None


def _without_upgrade(data: bytes) -> bytes:
    """A request that asks for another protocol without that wish: the parser would lose its body."""
    head = data.find(b"\r\n\r\n")
    found = UPGRADE.search(data, 0, head if head >= 0 else len(data))
    return data[: found.start()] + b"\r\nx-upgrade:" + data[found.end() :] if found else data


def _give_up_on_silence(transport: asyncio.Transport, seconds: float) -> None:
    """End a connection whose other end takes nothing of what we send."""
    raw: Any = transport.get_extra_info("socket")
    if raw is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * seconds))
