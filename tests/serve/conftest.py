"""Tiny models of all families on disk, and servers that run in a thread of the test."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest

from heedful.config import SearchSettings
from heedful.serve.server import Server, bind_socket, make_state
from heedful.serve.server_settings import Limits, ServedFolder, ServerSettings
from heedful.serve.state import ServerState
from heedful.serve.worker import serve_model
from heedful.storage.folder import save_folder
from tests.inside.conftest import make_folder, tokenizer

__all__ = ["make_folder", "tokenizer"]

TEXT = "The dog sleeps. The old man reads a book."


@dataclass
class Running:
    """A server at an address."""

    url: str
    port: int
    state: ServerState
    server: Server
    loop: asyncio.AbstractEventLoop

    def client(self, **options: object) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=120, **options)  # type: ignore[arg-type]

    def call(self, coroutine):
        """Run something in the loop of the server."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(120)


def start_thread(pipe: socket.socket, served: ServedFolder) -> Callable[[], None]:
    """Run a model in a thread of this process instead of a process of its own."""

    def run() -> None:
        with pipe:
            serve_model(pipe, served.folder)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return lambda: thread.join(5)


@contextlib.contextmanager
def serving(models: dict[str, Path], limits: Limits | None = None, drain: float = 2.0, **changes) -> Iterator[Running]:
    """Serve these models until the end of the block; drained and ended as by SIGTERM, but without notice."""
    served = tuple(ServedFolder.parse(f"{name}={path}") for name, path in models.items())
    settings = ServerSettings(served, port=0, limits=replace(limits or Limits(), drain=drain), **changes)
    begun: list[Running | BaseException] = []
    ready = threading.Event()

    async def main() -> None:
        listening = bind_socket(settings.host, 0)
        state = make_state(settings, start_thread)
        server = Server(state)
        await state.models.load()
        port = listening.getsockname()[1]
        begun.append(Running(f"http://127.0.0.1:{port}", port, state, server, asyncio.get_running_loop()))
        serve = asyncio.ensure_future(server.serve(sockets=[listening]))
        while not server.started:
            await asyncio.sleep(0.002)
        ready.set()
        await serve
        await state.models.close()

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    assert ready.wait(120)
    running = begun[0]
    assert isinstance(running, Running)
    try:
        yield running
    finally:
        with contextlib.suppress(RuntimeError):  # it has ended already
            for _ in range(2):  # who says it twice does not want to wait
                running.loop.call_soon_threadsafe(running.server.drain)
        thread.join(60)
        assert not thread.is_alive()


def response(connection: socket.socket) -> bytes:
    """One response with its body, from a connection that stays open."""
    got = b""
    while b"\r\n\r\n" not in got:
        got += (received := connection.recv(65536))
        assert received, got
    head, _, body = got.partition(b"\r\n\r\n")
    (length,) = (int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:"))
    while len(body) < length:
        body += (received := connection.recv(65536))
        assert received, body
    return head + b"\r\n\r\n" + body


@pytest.fixture(scope="session")
def folders(make_folder, tmp_path_factory) -> dict[str, Path]:
    """Model folders by name: two translators, a GPT and an encoder."""
    root = tmp_path_factory.mktemp("served")
    families = {"en-de": "encoder-decoder", "de-en": "encoder-decoder", "gpt": "decoder", "bert": "encoder"}
    for name, family in families.items():
        changes = {"pre_norm": True} if name == "de-en" else {}
        folder = make_folder(family, **changes)
        folder.path, folder.search = root / name, SearchSettings(beam=4, max_extra=3)  # as wide as the page asks for
        save_folder(folder)
    return {name: root / name for name in families}


@pytest.fixture(scope="session")
def running(folders) -> Iterator[Running]:
    """All models, with the usual limits."""
    with serving(folders) as server:
        yield server


@pytest.fixture
def client(running) -> Iterator[httpx.Client]:
    with running.client() as made:
        yield made
