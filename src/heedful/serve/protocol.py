"""Connections before they are requests: how many an address may hold, and how slowly it may speak."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections import Counter
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from heedful.serve.metrics import Metrics
from heedful.serve.settings import Limits

PHRASES = {400: b"Bad Request", 429: b"Too Many Requests", 431: b"Request Header Fields Too Large"}


def protocol(limits: Limits, metrics: Metrics) -> type[H11Protocol]:
    """The protocol of a server with these limits."""
    holding: Counter[str] = Counter()

    class Protocol(H11Protocol):
        slow: asyncio.TimerHandle | None = None
        address = ""
        refused = False

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.address = self.client[0] if self.client else ""
            holding[self.address] += 1
            metrics.connections.inc()
            _give_up_on_silence(transport, limits.receiving)
            if 0 < limits.connections < holding[self.address]:
                self.refused = True
                metrics.rejections.labels("connections").inc()
                self._say(429, f"this address holds more than {limits.connections} connections; close some.")
                return
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._unwatch()
            metrics.connections.dec()
            holding[self.address] -= 1
            if not holding[self.address]:
                del holding[self.address]

        def data_received(self, data: bytes) -> None:
            if self.refused:
                return
            super().data_received(data)
            if self.cycle is None or self.cycle.response_complete:
                self._watch()
            else:
                self._unwatch()

        def send_400_response(self, msg: str) -> None:
            error = sys.exc_info()[1]
            status = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
            if status == 431:
                metrics.rejections.labels("headers").inc()
                return self._say(431, f"the headers have more than {limits.headers:,} bytes.")
            return self._say(400, "this is not a valid HTTP request.")

        def _say(self, status: int, message: str) -> None:
            body = json.dumps({"error": message}).encode()
            head = [
                b"HTTP/1.1 %d %s" % (status, PHRASES[status]),
                b"content-type: application/json",
                b"content-length: %d" % len(body),
                b"connection: close",
                *([b"retry-after: 5"] if status == 429 else []),
            ]
            self.transport.write(b"\r\n".join([*head, b"", body]))
            self.transport.close()

        def _watch(self) -> None:
            """From now on a request has to come before long."""
            if self.slow is None:
                self.slow = self.loop.call_later(limits.receiving, self.transport.abort)

        def _unwatch(self) -> None:
            if self.slow is not None:
                self.slow.cancel()
                self.slow = None

    return Protocol


def _give_up_on_silence(transport: asyncio.Transport, seconds: float) -> None:
    """End a connection whose other end takes nothing of what we send."""
    raw: Any = transport.get_extra_info("socket")
    if raw is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * seconds))
