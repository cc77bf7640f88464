"""ASGI middleware: limits of a request and of an address, headers of every response, the log and the metrics."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heedful.serve import logs
from heedful.serve.http_errors import ClientDisconnectedError, HttpError, error_response
from heedful.serve.state import ServerState

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src blob:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
PAGE_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(self)",
}
AUDIO_PATH = "/v1/audio/transcriptions"
METHODS = frozenset({"GET", "POST", "HEAD", "OPTIONS"})
CLOSE = {"connection": "close"}


class LimitsMiddleware:
    """Reads the body before the routes run: bounded in size and time, from a bounded number of requests per address.

    Then `scope["deadline"]` is the time of the event loop at which the response is due.
    """

    def __init__(self, app: ASGIApp, state: ServerState) -> None:
        self.app, self.state = app, state
        self.active: Counter[str] = Counter()  # requests in progress by address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        address, limits = scope["client"][0] if scope["client"] else "", self.state.settings.limits
        self.active[address] += 1
        try:
            try:
                body = await self._read(scope, receive, self.active[address])
            except (Exception, asyncio.CancelledError) as error:
                await error_response(self.state, scope, error)(scope, receive, send)
                return
            scope["deadline"] = asyncio.get_running_loop().time() + limits.max_time
            await self.app(scope, _replay(body, receive), send)
        finally:
            self.active[address] -= 1
            if not self.active[address]:
                del self.active[address]

    async def _read(self, scope: Scope, receive: Receive, active: int) -> bytes:
        limits, headers = self.state.settings.limits, Headers(scope=scope)
        expects_continue = headers.get("expect", "").lower() == "100-continue"  # the client waits to send the body
        close = CLOSE if expects_continue else {}
        if sum(len(name) + len(value) + 4 for name, value in scope["headers"]) > limits.max_headers:
            raise HttpError(
                400, f"the headers have more than {limits.max_headers:,} bytes.", reason="headers", headers=close
            )
        if "transfer-encoding" in headers and "content-length" in headers:
            raise HttpError(400, "send either Content-Length or Transfer-Encoding, not both.", headers=CLOSE)
        if 0 < limits.max_connections < active:
            message = (
                f"this address has more than {limits.max_connections} requests in progress; wait for some to finish."
            )
            raise HttpError(429, message, retry=5, reason="connections", headers=close)
        most = limits.max_audio if scope["path"] == AUDIO_PATH else limits.max_body
        if expects_continue and int(headers.get("content-length", "0")) > most:
            raise _body_too_large(most, CLOSE)
        return await read_body(receive, most, limits.max_receive)


async def read_body(receive: Receive, most: int, seconds: float) -> bytes:
    """The whole body; one of more than `most` bytes is read and discarded, so that the client can read the response."""
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(seconds):
            more = True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnectedError
                chunk = message.get("body", b"")
                size += len(chunk)
                if size <= most:
                    chunks.append(chunk)
                more = message.get("more_body", False)
    except TimeoutError:
        if size > most:
            raise _body_too_large(most, CLOSE) from None
        problem = f"the request body took more than {seconds:g} s to arrive."
        raise HttpError(408, problem, reason="slow", headers=CLOSE) from None
    if size > most:
        raise _body_too_large(most)
    return b"".join(chunks)


def _body_too_large(most: int, headers: dict[str, str] | None = None) -> HttpError:
    return HttpError(413, f"the body has more than {most:,} bytes.", reason="body", headers=headers)


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that returns this body first."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay


class ResponseMiddleware:
    """Adds headers to every response, logs the request and updates the metrics."""

    def __init__(self, app: ASGIApp, state: ServerState) -> None:
        self.app, self.state = app, state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        start, status = time.perf_counter(), 0
        scope["request_id"] = f"{random.getrandbits(64):016x}"

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._add_headers(scope, message)
            await send(message)

        try:
            await self.app(scope, receive, send_with_headers)
        finally:
            self._record(scope, status, time.perf_counter() - start)

    def _add_headers(self, scope: Scope, message: Message) -> None:
        headers = MutableHeaders(scope=message)
        if headers.get("content-type", "").startswith("text/html"):
            for name, value in PAGE_HEADERS.items():
                headers.setdefault(name, value)
        headers.setdefault("x-content-type-options", "nosniff")
        headers["x-request-id"] = scope["request_id"]
        if self.state.draining:
            headers["connection"] = "close"

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        route, client = scope.get("route", "other"), scope["client"]
        method = scope["method"] if scope["method"] in METHODS else "other"
        self.state.metrics.count_request(route, method, str(status)).inc()
        self.state.metrics.observe_seconds(route).observe(seconds)
        reason = {"reason": scope["rejected"]} if "rejected" in scope else {}
        logs.log_event(
            "request", request=scope["request_id"], method=method, route=route, status=status,
            client=client[0] if client else None, ms=round(1000 * seconds, 1), **reason,
        )  # fmt: skip
