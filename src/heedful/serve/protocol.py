"""Connections before they are requests: how many an address may hold, how much it may say, and how slowly."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections import Counter
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from heedful.serve.metrics import Metrics
from heedful.serve.settings import Limits

PHRASES = {400: b"Bad Request", 429: b"Too Many Requests", 431: b"Request Header Fields Too Large"}
UPGRADE = re.compile(rb"\r\nupgrade:", re.IGNORECASE)
WRITING = 60.0  # seconds that a client may take to read what waits for it


def protocol(limits: Limits, metrics: Metrics, refuse: Callable[[bytes], bytes | None]) -> type[HttpToolsProtocol]:
    """The protocol of a server with these limits; what `refuse` has to say to a POST at once is its answer."""
    holding: Counter[str] = Counter()

    class Protocol(HttpToolsProtocol):
        slow: asyncio.TimerHandle | None = None  # ends a connection that says nothing
        full: asyncio.TimerHandle | None = None  # ends a connection that reads nothing
        address = ""
        deaf = False  # it was told that it is no longer listened to
        lost = False
        leave: Callable[[], object] | None = None  # what to do if the client hangs up before it has its answer
        beside = 0  # bytes since the last request or piece of a body that belong to none
        refusal: bytes | None = None  # the answer to what is being received

        # ---- coming and going

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.address = self.client[0] if self.client else ""
            holding[self.address] += 1
            metrics.connections.inc()
            _give_up_on_silence(transport, limits.receiving)
            if 0 < limits.connections < holding[self.address]:
                metrics.rejected("connections").inc()
                self._say(429, f"this address holds more than {limits.connections} connections; close some.")
                return
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._unwatch()
            if self.full is not None:
                self.full.cancel()
            metrics.connections.dec()
            holding[self.address] -= 1
            if not holding[self.address]:
                del holding[self.address]
            self.lost = True
            if self.leave is not None:
                self.leave()

        # ---- hearing

        @property
        def heard(self) -> bool:
            """Whether all of the request has come in."""
            return not self.cycle.more_body

        def data_received(self, data: bytes) -> None:
            if self.deaf:
                return
            if self.cycle is None or self.heard:  # these are headers
                data = _without_upgrade(data)
            self.beside += len(data)
            super().data_received(data)
            if self.beside > limits.headers and not self.deaf:
                self.send_400_response("")
            if self._unheeded():
                self._watch()
            else:
                self._unwatch()

        def _unheeded(self) -> bool:
            """Whether a part of a request has come whose rest nobody waits for."""
            if self.refusal is not None:
                return True
            if self.cycle is not None and not self.cycle.response_complete:
                return False
            return self.beside > 0 or (self.cycle is not None and not self.heard)

        def on_headers_complete(self) -> None:
            if sum(len(name) + len(value) + 4 for name, value in self.headers) + len(self.url) > limits.headers:
                self.beside = limits.headers + 1
                raise ValueError("too many headers")  # which the parser turns into an error of its own
            self.refusal = self._refusal()
            if self.refusal is None:
                self.scope["connection"] = self  # type: ignore[typeddict-unknown-key]
                super().on_headers_complete()

        def _refusal(self) -> bytes | None:
            """An answer that needs no look at the body, unless there is another one to be waited for."""
            if self.cycle is not None and not self.cycle.response_complete:
                return None
            length = dict(self.headers).get(b"content-length", b"")
            small = length.isdigit() and int(length) <= limits.body and not self.expect_100_continue
            return refuse(self.url) if small and self.parser.get_method() == b"POST" else None

        def on_body(self, body: bytes) -> None:
            self.beside = 0
            if self.refusal is None:
                super().on_body(body)

        def on_message_complete(self) -> None:
            self.beside = 0
            if self.refusal is None:
                return super().on_message_complete()
            self.transport.write(self.refusal)
            self.refusal = None
            return self.on_response_complete() if self.parser.should_keep_alive() else self.transport.close()

        # ---- saying

        def pause_writing(self) -> None:
            super().pause_writing()
            self.full = self.loop.call_later(WRITING, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            if self.full is not None:
                self.full.cancel()
                self.full = None

        def send_400_response(self, msg: str) -> None:
            if self.beside > limits.headers:
                metrics.rejected("headers").inc()
                return self._say(431, f"the headers have more than {limits.headers:,} bytes.")
            return self._say(400, "this is not a valid HTTP request.")

        def _say(self, status: int, message: str) -> None:
            self.deaf = True
            if self.cycle is not None and not self.heard and self.cycle.response_started:
                return self.transport.abort()  # it has its answer already
            body = json.dumps({"error": message}).encode()
            head = [
                b"HTTP/1.1 %d %s" % (status, PHRASES[status]),
                b"content-type: application/json",
                b"content-length: %d" % len(body),
                b"connection: close",
                *([b"retry-after: 5"] if status == 429 else []),
            ]
            self.transport.write(b"\r\n".join([*head, b"", body]))
            return self.transport.close()

        def _watch(self) -> None:
            """From now on a request has to come before long."""
            if self.slow is None:
                self.slow = self.loop.call_later(limits.receiving, self.transport.abort)

        def _unwatch(self) -> None:
            if self.slow is not None:
                self.slow.cancel()
                self.slow = None

    return Protocol


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
