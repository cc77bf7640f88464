"""Clients for `serving.py`, as cheap as they can be: they run in processes of their own on the cores of the server.

Nothing here imports heedful. Every function may be called in another process, and says what it took of the processor.
"""

from __future__ import annotations

import asyncio
import errno
import json
import random
import select
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field


def request(line: str, path: str = "/translate", **more: object) -> bytes:
    """A whole request."""
    body = json.dumps({"q": line, "source": "en", "target": "de"} | more).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


class Connection(asyncio.Protocol):
    """One kept connection, from an address of its own, so that limits of an address do not speak for all."""

    def __init__(self, port: int, number: int = 0) -> None:
        self.port, self.address = port, f"127.0.{1 + number // 200 % 200}.{1 + number % 200}"
        self.transport: asyncio.Transport | None = None
        self.data, self.status, self.answered = b"", 0, asyncio.get_running_loop().create_future()

    async def ask(self, data: bytes) -> int:
        """-> the status of the answer."""
        loop = asyncio.get_running_loop()
        if self.transport is None:
            await loop.create_connection(lambda: self, "127.0.0.1", self.port, local_addr=(self.address, 0))
        self.data, self.answered = b"", loop.create_future()
        if self.transport is None:
            raise ConnectionResetError
        self.transport.write(data)
        status: int = await self.answered
        return status

    def connection_made(self, transport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        head = self.data.find(b"\r\n\r\n")
        if head < 0:
            return
        at = self.data.find(b"content-length: ") + 16
        if len(self.data) < head + 4 + int(self.data[at : self.data.find(b"\r", at)]):
            return
        if self.data.find(b"connection: close", 0, head) >= 0:
            self.close()
        if not self.answered.done():
            self.answered.set_result(int(self.data[9:12]))

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        if not self.answered.done():
            self.answered.set_exception(exc or ConnectionResetError())

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()
        self.transport = None


@dataclass
class Load:
    """What came of requests: seconds of each answer by its status, and what else happened."""

    answers: dict[int, list[float]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0
    processor: float = 0.0

    def of(self, status: int) -> list[float]:
        return self.answers.get(status, [])


async def _ask(load: Load, connection: Connection, data: bytes) -> bool:
    """Ask and note what became of it; whether there was an answer."""
    began = time.perf_counter()
    try:
        status = await connection.ask(data)
    except OSError as error:
        if not isinstance(error, ConnectionRefusedError):
            load.problems.append(repr(error))
        return False
    load.answers.setdefault(status, []).append(time.perf_counter() - began)
    return True


class Client:
    """One that asks again and again over a kept connection, without anything between it and the kernel."""

    def __init__(self, port: int, number: int, poll: select.epoll) -> None:
        self.port, self.address, self.poll = port, f"127.0.{1 + number // 200 % 200}.{1 + number % 200}", poll
        self.socket: socket.socket | None = None
        self.request, self.got, self.began = b"", b"", 0.0

    def ask(self, data: bytes) -> socket.socket:
        """Send, or connect first and send later."""
        self.request, self.got, self.began = data, b"", time.perf_counter()
        if self.socket is None:
            self.socket = socket.socket()
            self.socket.setblocking(False)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.socket.bind((self.address, 0))
            self.socket.connect_ex(("127.0.0.1", self.port))
            self.poll.register(self.socket, select.EPOLLOUT)
        else:
            self.socket.send(data)
        return self.socket

    def heard(self, event: int) -> int:
        """The status of the answer, if all of it is here; 0 if not. Raises OSError at the end of the connection."""
        assert self.socket is not None
        if event & select.EPOLLOUT:
            if error := self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(error, "no connection")
            self.socket.send(self.request)
            self.poll.modify(self.socket, select.EPOLLIN)
            return 0
        piece = self.socket.recv(65536)
        if not piece:
            raise ConnectionResetError
        self.got += piece
        head, at = self.got.find(b"\r\n\r\n"), self.got.find(b"content-length: ") + 16
        if head < 0 or len(self.got) < head + 4 + int(self.got[at : self.got.find(b"\r", at)]):
            return 0
        if self.got.find(b"connection: close", 0, head) >= 0:
            self.close()
        return int(self.got[9:12])

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
        self.socket = None


def closed(port: int, requests: Sequence[bytes], clients: int = 64) -> Load:
    """So many clients, each one request after the other, until all are answered or no connection is taken any more."""
    load, rest, poll, asking = Load(), iter(requests), select.epoll(), dict[int, Client]()
    began, worked = time.perf_counter(), time.process_time()
    for number in range(clients):
        _next(Client(port, number, poll), rest, asking)
    while asking:
        for file, event in poll.poll():
            client = asking[file]
            try:
                status = client.heard(event)
            except OSError as error:
                if error.errno != errno.ECONNREFUSED:
                    load.problems.append(repr(error))
                client.close()
                del asking[file]
                continue
            if status:
                load.answers.setdefault(status, []).append(time.perf_counter() - client.began)
                del asking[file]
                _next(client, rest, asking)
    load.seconds, load.processor = time.perf_counter() - began, time.process_time() - worked
    return load


def _next(client: Client, rest: Iterator[bytes], asking: dict[int, Client]) -> None:
    data = next(rest, None)
    if data is None:
        client.close()
    else:
        asking[client.ask(data).fileno()] = client


def opened(port: int, requests: Sequence[bytes], rate: float, seconds: float, seed: int = 1) -> Load:
    """Requests at random times, whether answers come or not."""

    async def run() -> Load:
        load, free, tasks, chance = Load(), [], set(), random.Random(seed)
        numbers = iter(range(10**9))

        async def one(data: bytes) -> None:
            connection = free.pop() if free else Connection(port, next(numbers))
            if await _ask(load, connection, data):
                free.append(connection)

        began, worked = time.perf_counter(), time.process_time()
        due = began
        while due < began + seconds:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            task = asyncio.ensure_future(one(chance.choice(requests)))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            due += chance.expovariate(rate)
        await asyncio.gather(*tasks)
        load.seconds, load.processor = time.perf_counter() - began, time.process_time() - worked
        for connection in free:
            connection.close()
        return load

    return asyncio.run(run())


def health(port: int, seconds: float, pause: float = 0.02) -> list[float]:
    """Seconds that /health took, asked for again and again by somebody who does nothing else."""
    took, end = [], time.monotonic() + seconds
    with socket.create_connection(("127.0.0.1", port), source_address=("127.0.201.1", 0)) as connection:
        while time.monotonic() < end:
            began, received = time.perf_counter(), b""
            connection.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
            while b'{"status"' not in received:
                received += connection.recv(4096)
            took.append(time.perf_counter() - began)
            time.sleep(pause)
    return took


def slow(port: int, count: int, requests: Sequence[bytes], seconds: float) -> tuple[Load, int, float]:
    """How others fare beside clients that send a byte of their body a second, and how many of these are sent away."""

    async def run() -> tuple[Load, int, float]:
        opened, load = [], Load()
        for number in range(count):
            address = "127.0.0.9" if number % 2 else f"127.0.9.{1 + number}"
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
            writer.write(b"POST /translate HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n")
            opened.append((reader, writer))

        async def drip() -> None:
            while True:
                for _, writer in opened:
                    if not writer.is_closing():
                        writer.write(b"x")
                await asyncio.sleep(1)

        began, dripping, connection = time.perf_counter(), asyncio.ensure_future(drip()), Connection(port)
        for data in requests:
            await _ask(load, connection, data)
        connection.close()
        await asyncio.wait({asyncio.ensure_future(reader.read()) for reader, _ in opened}, timeout=seconds)
        dripping.cancel()
        gone = sum(reader.at_eof() or reader.exception() is not None for reader, _ in opened)
        for _, writer in opened:
            writer.close()
        return load, gone, time.perf_counter() - began

    return asyncio.run(run())
