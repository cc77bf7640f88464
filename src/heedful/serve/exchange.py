"""One request and its answer, between the connection that they go over and the application."""

from __future__ import annotations

import asyncio
import http
from collections.abc import Callable
from typing import Any, Protocol

from starlette.types import Message, Scope

ASGI = {"version": "3.0", "spec_version": "2.3"}
STATUS = {each.value: b"HTTP/1.1 %d %b\r\n" % (each.value, each.phrase.encode()) for each in http.HTTPStatus}
Header = tuple[bytes, bytes]


def announced(headers: dict[bytes, bytes]) -> int | None:
    """Bytes that the body is said to have."""
    length = headers.get(b"content-length", b"")
    return int(length) if length.isdigit() else None


def expects(headers: dict[bytes, bytes]) -> bool:
    """Whether the body comes only if it is asked for."""
    return headers.get(b"expect", b"").lower() == b"100-continue"


class Way(Protocol):
    """What an exchange has to know of its connection."""

    transport: asyncio.Transport
    writable: asyncio.Event | None  # to be waited for, if much waits to be sent

    def usual(self) -> list[Header]:
        """Headers of every answer."""

    def answered(self) -> None:
        """The answer is out."""

    def hang_up(self, heard: bool) -> None:
        """It was the last one; whether all of the request was heard."""


class Exchange:
    """A request as it comes in, and an answer that goes out in as few pieces as it is made of.

    The application calls `receive` and `send`, as ASGI has it; whoever wants the body as a whole waits for `whole`.
    """

    def __init__(self, way: Way, scope: Scope, headers: dict[bytes, bytes], most: int, keep: bool) -> None:
        self.way, self.scope, self.headers, self.most, self.keep = way, scope, headers, most, keep
        self.expects = expects(headers)
        self.pieces: list[bytes] = []  # of the body
        self.size = 0  # of the body, so far
        self.heard = False  # all of the request
        self.received = False  # by the application
        self.large = (announced(headers) or 0) > most  # by its own word, or by what came
        self.gone = False  # the client hung up
        self.done = False  # the answer is out
        self.task: asyncio.Task[None] | None = None  # that answers
        self.due = 0.0  # when the answer has to be there, once somebody computes it
        self.leave: Callable[[], object] | None = None  # what to do if the client hangs up before it has its answer
        self.news: asyncio.Future[None] | None = None  # somebody waits for the rest, or for the end
        self.start: Message | None = None  # goes out with the beginning of the body
        self.chunked = False
        self.status = 0  # of the answer, once it has begun
        self.dress: Callable[[Scope, dict[bytes, bytes]], None] = lambda scope, headers: None  # adds to its headers

    # ---- the request

    def take(self, body: bytes) -> None:
        """A piece of the body."""
        self.size += len(body)
        if self.large or self.size > self.most:
            self.large, self.pieces = True, []
            self._wake()
        else:
            self.pieces.append(body)

    @property
    def body(self) -> bytes:
        """What has come in of it."""
        return b"".join(self.pieces)

    def end(self) -> None:
        """All of it has come in."""
        self.heard = True
        self._wake()

    def lose(self) -> None:
        """The client hung up."""
        self.gone = not self.done
        self._wake()
        if self.leave is not None:
            self.leave()

    async def whole(self) -> None:
        """Wait until the body has come in, is too large, or will never come."""
        if self.expects and not self.heard:
            self.expects = False
            self.way.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        while not (self.heard or self.large or self.gone):
            await self._news()

    async def receive(self) -> Message:
        """The body in one piece; after that, that the client is gone or has its answer, once it is so."""
        if not self.received:
            self.received = True
            await self.whole()
        else:
            while not (self.gone or self.done):
                await self._news()
        if self.gone or self.done:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": self.body, "more_body": False}

    async def _news(self) -> None:
        if self.news is None:
            self.news = asyncio.get_running_loop().create_future()
        await self.news

    def _wake(self) -> None:
        if self.news is not None and not self.news.done():
            self.news.set_result(None)
        self.news = None

    # ---- the answer

    async def send(self, message: Message) -> None:
        if self.way.writable is not None:
            await self.way.writable.wait()
        if self.gone:
            self.status = self.status or message.get("status", 0)  # for the log
            return
        if message["type"] == "http.response.start":
            self.start = message
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        pieces: list[Any] = self._head(self.start) if self.start is not None else []
        if self.chunked:
            pieces += [b"%x\r\n" % len(body), body, b"\r\n"] if body else []
            pieces += [] if more else [b"0\r\n\r\n"]
        elif self.scope["method"] != "HEAD":
            pieces.append(body)
        self.way.transport.write(b"".join(pieces))
        if not more:
            self.done = True
            self._wake()
            if not self.keep:
                self.way.hang_up(self.heard)
            self.way.answered()

    def _head(self, start: Message) -> list[bytes]:
        self.start, self.expects, self.status = None, False, start["status"]
        headers = dict(start["headers"])
        self.dress(self.scope, headers)
        if not self.keep:
            headers[b"connection"] = b"close"
        elif b"connection" in headers:
            self.keep = headers[b"connection"] != b"close"
        framed = b"content-length" in headers or self.scope["method"] == "HEAD" or self.status in (204, 304)
        if not framed and self.scope["http_version"] != "1.0":  # where it ends with the connection
            self.chunked = True
            headers[b"transfer-encoding"] = b"chunked"
        lines = [b"%b: %b\r\n" % each for each in [*self.way.usual(), *headers.items()]]
        return [STATUS.get(self.status) or b"HTTP/1.1 %d \r\n" % self.status, *lines, b"\r\n"]
