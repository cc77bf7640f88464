"""What an operator relies on: limits, slow and vanishing clients, reloading, dying models, draining, a silent log."""

from __future__ import annotations

import asyncio
import ctypes
import io
import json
import socket
import struct
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import httpx
import pytest

from heedful.serve import logs, server
from heedful.serve.http_errors import ClientDisconnectedError, HttpError
from heedful.serve.model_process import ModelProcess
from heedful.serve.request_checks import run_until_disconnect
from heedful.serve.server_settings import Limits
from heedful.serve.translation_workload import TranslationWorkload
from tests.serve.conftest import TEXT, response, serving

BODY = {"q": TEXT, "source": "en", "target": "de"}
REQUEST = b"POST /translate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"


@pytest.fixture
def held(folders, monkeypatch):
    """A server whose translator stands still until it is let go."""
    go = threading.Event()

    def held(self, step=TranslationWorkload.step):
        go.wait(20)
        return step(self)

    monkeypatch.setattr(TranslationWorkload, "step", held)
    limits = Limits(queue=6, max_receive=1.0, max_connections=20, max_headers=2048)
    with serving({"en-de": folders["en-de"]}, limits, drain=4.0) as running:
        yield running, go
        go.set()


def raw(running, data: bytes = b"", address: str = "127.0.0.1") -> socket.socket:
    made = socket.create_connection(("127.0.0.1", running.port), 5, source_address=(address, 0))
    made.sendall(data)
    return made


def asking(running) -> tuple[socket.socket, ModelProcess]:
    """A connection with a request that is being worked on, and who works on it."""
    body = json.dumps(BODY).encode()
    connection = raw(running, REQUEST % len(body) + body)
    model = running.state.models.by_name["en-de"]
    while not model.outstanding:
        time.sleep(0.005)
    return connection, model


def wait_until_idle(model: ModelProcess) -> None:
    end = time.monotonic() + 30
    while model.outstanding and time.monotonic() < end:
        time.sleep(0.005)


def answer(connection: socket.socket) -> bytes:
    received = b""
    with connection:
        connection.settimeout(30)
        while piece := connection.recv(65536):
            received += piece
    return received


def test_a_full_queue_says_so_at_once_and_when_to_come_again(held):
    running, go = held
    with ThreadPoolExecutor(8) as pool, running.client() as client:
        accepted = [pool.submit(client.post, "/translate", json=BODY) for _ in range(3)]  # 6 sentences
        while running.state.models.by_name["en-de"].outstanding < 6:
            time.sleep(0.005)
        began = time.perf_counter()
        refused = client.post("/translate", json=BODY)
        assert time.perf_counter() - began < 0.5
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert "every model here has a full queue" in refused.json()["error"]
        assert client.get("/health").status_code == 200
        go.set()
        assert [item.result().status_code for item in accepted] == [200] * 3
        assert 'heedful_rejections_total{reason="queue"} 1.0' in client.get("/metrics").text
        assert client.post("/translate", json=BODY).status_code == 200


def test_what_is_refused_is_not_parsed_and_its_connection_is_kept(held):
    running, go = held
    model = running.state.models.by_name["en-de"]
    body = json.dumps(BODY).encode()
    with ThreadPoolExecutor(8) as pool, running.client() as client, running.client() as other:
        accepted = [pool.submit(client.post, "/translate", json=BODY) for _ in range(2)]
        while model.outstanding < 4:
            time.sleep(0.005)
        large = client.post("/translate", json=BODY | {"q": [TEXT] * 2})  # 4 sentences, and there is room for 2
        assert large.status_code == 503 and "the model en-de has a full queue" in large.json()["error"]
        behind = raw(running, (REQUEST % len(body) + body) * 3)  # the second and third wait for the first
        while model.outstanding < 6:
            time.sleep(0.005)
        remaining = raw(running)
        wish = b'{"q": "\r\nUpgrade: h2c\r\n\r\n"}'
        for pieces in (
            [REQUEST % len(body) + body],
            [REQUEST % len(body), body[:20], body[20:]],
            [REQUEST % 2, b"{{"],
            [REQUEST % len(wish), wish],
        ):
            for piece in pieces:
                remaining.sendall(piece)
                time.sleep(0.02)
            answer_to_it = response(remaining)
            assert answer_to_it.startswith(b"HTTP/1.1 503 ") and b"retry-after: " in answer_to_it
            assert b"every model here has a full queue" in answer_to_it
        assert set(other.post("/v1/translations", json={"text": "a"}).json()["error"]) == {
            "message", "type", "param", "code",
        }  # fmt: skip
        assert other.get("/languages").status_code == 200
        assert other.post("/nowhere", json={}).status_code == 404
        closing = REQUEST.replace(b"host: x", b"host: x\r\nconnection: close") % len(body) + body
        assert answer(raw(running, closing)).startswith(b"HTTP/1.1 503 ")
        chunked = other.post("/translate", content=iter([body]), headers={"content-type": "application/json"})
        assert chunked.status_code == 503
        go.set()
        assert [item.result().status_code for item in accepted] == [200] * 2
        received = b""
        behind.settimeout(20)
        while received.count(b"HTTP/1.1 ") < 3:
            received += behind.recv(65536)
        assert received.startswith(b"HTTP/1.1 200 ")
        remaining.sendall(REQUEST % len(body) + body)
        assert response(remaining).startswith(b"HTTP/1.1 200 ")
        behind.close()
        remaining.close()


def test_a_disconnected_client_stops_the_computation(held):
    running, go = held
    connection, model = asking(running)
    connection.close()
    wait_until_idle(model)
    assert model.outstanding == 0
    go.set()


def test_an_answer_that_takes_too_long_is_given_up(held, monkeypatch):
    running, go = held
    settings = running.state.settings
    monkeypatch.setattr(running.state, "settings", replace(settings, limits=replace(settings.limits, max_time=1.0)))
    with running.client() as client:
        late = client.post("/translate", json=BODY)
    assert late.status_code == 503
    assert "more than 1 s" in late.json()["error"]
    assert running.state.models.by_name["en-de"].outstanding == 0
    go.set()


def test_work_is_cancelled_at_the_deadline_and_when_the_client_is_gone():
    ended: list[str] = []

    async def work(name: str, seconds: float) -> str:
        try:
            await asyncio.sleep(seconds)
        finally:
            ended.append(name)
        return name

    async def connected() -> dict[str, str]:
        return await asyncio.sleep(60, {})

    async def gone() -> dict[str, str]:
        return {"type": "http.disconnect"}

    async def main() -> None:
        deadline = asyncio.get_running_loop().time() + 0.1
        assert await run_until_disconnect(work("a", 0.0), connected, deadline, 0.1) == "a"
        with pytest.raises(HttpError, match=r"more than 0\.1 s"):
            await run_until_disconnect(work("b", 60.0), connected, deadline, 0.1)
        with pytest.raises(ClientDisconnectedError):
            await run_until_disconnect(work("c", 60.0), gone, deadline + 60, 60.0)
        assert ended == ["a", "b", "c"]

    asyncio.run(main())


def test_slow_bodies_are_refused_and_other_clients_are_served(held):
    running, go = held
    go.set()
    slow = [raw(running, REQUEST % 100 + b"{") for _ in range(4)] + [raw(running, REQUEST[:40]) for _ in range(8)]
    with running.client() as client:
        assert client.post("/translate", json=BODY).status_code == 200
    for item in slow[:4]:
        received = answer(item)
        assert received.startswith(b"HTTP/1.1 408 ") and b"connection: close" in received
    for value in slow[4:]:
        value.close()


def test_an_address_may_have_so_many_requests_at_once(held):
    running, go = held
    go.set()
    idle = [raw(running) for _ in range(30)]
    many = [raw(running, REQUEST % 100 + b"{") for _ in range(20)]
    body = json.dumps(BODY).encode()
    ask = REQUEST.replace(b"host: x", b"host: x\r\nconnection: close") % len(body) + body
    refused = answer(raw(running, ask))
    assert refused.startswith(b"HTTP/1.1 429 ")
    assert b"retry-after" in refused and b"more than 20 requests" in refused
    assert answer(raw(running, ask, "127.0.0.2")).startswith(b"HTTP/1.1 200 ")
    with running.client(transport=httpx.HTTPTransport(local_address="127.0.0.2")) as client:
        assert "heedful_connections 5" in client.get("/metrics").text  # 30 + 20 and this one
    for item in many:
        item.close()
    with running.client() as client:
        assert client.post("/translate", json=BODY).status_code == 200
    for value in idle:
        value.close()


def test_long_headers_and_what_is_not_http_are_refused(held):
    running, go = held
    go.set()
    long = b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"a" * 4000
    assert answer(raw(running, long)).startswith(b"HTTP/1.1 400 ")
    assert answer(raw(running, long + b"\r\nconnection: close\r\n\r\n")).startswith(b"HTTP/1.1 400 ")
    head = (
        b"POST /translate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    for flood in (b"1;x=" + b"a" * 4000, b"0\r\nx: " + b"a" * 4000):  # beside a body, and after it
        connection = raw(running, head)
        time.sleep(0.05)
        connection.sendall(flood)
        assert answer(connection).startswith(b"HTTP/1.1 400 ")
    assert answer(raw(running, b"\x16\x03\x01 hello\r\n\r\n")).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("close", [b"", b"\r\nconnection: close"])
def test_a_client_that_is_still_sending_gets_the_answer(running, close):
    connection = raw(running, REQUEST.replace(b"host: x", b"host: x" + close) % 3_000_000)
    for _ in range(60):
        time.sleep(0.005)
        connection.sendall(b" " * 50_000)  # of a body that is too large, by its own word
    assert response(connection).startswith(b"HTTP/1.1 413 ")
    connection.close()


def test_a_body_that_is_too_large_and_never_ends_is_not_waited_for(held):
    running, go = held
    go.set()
    expects = REQUEST.replace(b"host: x", b"host: x\r\nexpect: 100-continue") % 2_000_000
    for data in (REQUEST % 2_000_000 + b" " * 1_100_000, expects):
        received = answer(raw(running, data))
        assert received.startswith(b"HTTP/1.1 413 ") and b"connection: close" in received


def test_nonsense_after_a_request_is_answered_after_it(held):
    running, go = held
    connection, _ = asking(running)
    connection.sendall(b"\x00\x01 nonsense\r\n\r\n")
    go.set()
    received = answer(connection)
    assert [item[:3] for item in received.split(b"HTTP/1.1 ")[1:]] == [b"200", b"400"]


def test_a_body_without_a_length_has_the_same_limit(running):
    def endless():
        for _ in range(40):
            yield b" " * 65536

    with running.client() as client:
        answer = client.post("/translate", content=endless(), headers={"content-type": "application/json"})
    assert answer.status_code == 413


def test_an_upgrade_to_http_2_is_answered_in_http_1(running):
    """Some clients ask for HTTP/2 in every request, with a body that is not to be lost."""
    body = json.dumps(BODY | {"q": "a\r\nUpgrade: b"}).encode()
    wish = b"host: x\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk"
    head = (REQUEST % len(body)).replace(b"host: x", wish)
    with running.client() as client:
        expected = client.post("/translate", content=body, headers={"content-type": "application/json"}).json()
    for pieces in ([head + body], [head, body], [head[:70], head[70:] + body]):
        connection = raw(running)
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(0.02)
        received = answer(connection)
        assert received.startswith(b"HTTP/1.1 200 "), received
        assert json.loads(received.partition(b"\r\n\r\n")[2]) == expected


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="of Linux")
def test_a_client_that_reads_nothing_is_disconnected(folders, monkeypatch):
    monkeypatch.setattr(server, "UNREAD_TIMEOUT_SECONDS", 0.3)
    with serving({"en-de": folders["en-de"]}) as running, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", running.port))
        connection.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n" * 200)
        open_now = running.server.server_state.connections
        end = time.monotonic() + 30
        while not open_now and time.monotonic() < end:
            time.sleep(0.005)
        assert open_now
        while open_now and time.monotonic() < end:
            time.sleep(0.005)
        assert not open_now


def test_draining_says_not_ready_first_and_loses_nothing(folders, monkeypatch):
    monkeypatch.setattr(server, "NOT_READY_SECONDS", 60.0)  # until we say so
    monkeypatch.setattr(server, "LINGER_SECONDS", 0.2)
    statuses: list[object] = []
    with serving({"en-de": folders["en-de"]}, drain=300.0) as running:

        def ask() -> None:
            with running.client() as client:
                while True:
                    try:
                        statuses.append(client.post("/translate", json=BODY).status_code)
                    except httpx.ConnectError:
                        return  # it takes no more connections: nothing was accepted
                    except httpx.HTTPError as error:
                        statuses.append(repr(error))
                        return

        with ThreadPoolExecutor(6) as pool:
            clients = [pool.submit(ask) for _ in range(6)]
            while len(statuses) < 12:
                time.sleep(0.01)
            running.loop.call_soon_threadsafe(running.server.drain)
            with running.client() as client:
                while (last := client.get("/ready")).status_code == 200:
                    time.sleep(0.01)
                assert last.json() == {"status": "draining"}
                assert last.headers["connection"] == "close"
                assert client.get("/health").status_code == 200
            running.loop.call_soon_threadsafe(running.server.drain)
            for item in clients:
                item.result(20)
    assert set(statuses) == {200}


def test_connections_that_wait_in_the_backlog_are_served_before_the_end(folders, monkeypatch):
    waiting: list[socket.socket] = []
    shutdown = server.Server.shutdown

    async def connect_and_shut_down(self: server.Server, sockets: list[socket.socket]) -> None:
        for _ in range(5):  # the event loop is busy here, so the kernel alone accepts them
            waiting.append(socket.create_connection(sockets[0].getsockname(), timeout=20))
            waiting[-1].sendall(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        await shutdown(self, sockets)

    monkeypatch.setattr(server.Server, "shutdown", connect_and_shut_down)
    with serving({"en-de": folders["en-de"]}):
        pass
    for connection in waiting:
        with connection:
            assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
    assert len(waiting) == 5


def test_a_new_connection_is_waited_for_before_the_end(folders, monkeypatch):
    """A client on a busy machine may need longer for its first request than an idle connection is kept."""
    monkeypatch.setattr(server, "LINGER_SECONDS", 0.0)
    shutdown, answers = server.Server.shutdown, []

    def ask_late(connection: socket.socket) -> None:
        with connection:
            connection.settimeout(20)
            time.sleep(0.3)
            connection.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            answers.append(connection.recv(65536)[:13])

    async def connect_and_shut_down(self: server.Server, sockets: list[socket.socket]) -> None:
        clients = [threading.Thread(target=ask_late, args=(socket.create_connection(sockets[0].getsockname()),))]
        clients[0].start()
        await shutdown(self, sockets)
        clients[0].join(20)

    monkeypatch.setattr(server.Server, "shutdown", connect_and_shut_down)
    with serving({"en-de": folders["en-de"]}, drain=80.0):
        pass
    assert answers == [b"HTTP/1.1 200 "]


def test_the_last_accept_leaves_no_connection_in_the_backlog():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(10)
        listener.setblocking(False)
        with socket.create_connection(listener.getsockname()) as client:
            (accepted,) = server.accept_last(listener)
            with accepted:
                client.sendall(b"x")
                assert accepted.recv(1) == b"x"
        if sys.platform == "linux":
            with pytest.raises(TimeoutError):
                socket.create_connection(listener.getsockname(), timeout=0.2)


@pytest.mark.skipif(sys.platform != "linux", reason="sockets have filters on Linux only")
def test_a_connection_that_has_inherited_the_filter_is_heard():
    """As one that is established while the filter is attached; this filter drops only packets with data."""
    long_packets = [(0x80, 0, 0, 0), (0x25, 0, 1, 100), (0x06, 0, 0, 0), (0x06, 0, 0, 0xFFFFFFFF)]  # BPF: length > 100
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in long_packets))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(10)
        listener.setblocking(False)
        attached = struct.pack("HP", len(long_packets), ctypes.addressof(program))
        listener.setsockopt(socket.SOL_SOCKET, server.SO_ATTACH_FILTER, attached)
        with socket.create_connection(listener.getsockname()) as client:
            (accepted,) = server.accept_last(listener)
            with accepted:
                accepted.settimeout(20)
                client.sendall(b"x" * 200)
                assert accepted.recv(200) == b"x" * 200


def test_models_and_keys_are_reloaded_without_a_loss(folders, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# ours\nthe-first-key\n")
    with serving({"en-de": folders["en-de"]}, keys=server.read_keys(keys)) as running:
        done, statuses = threading.Event(), []

        def ask() -> None:
            with running.client(headers={"authorization": "Bearer the-first-key"}) as client:
                while not done.is_set():
                    statuses.append(client.post("/translate", json=BODY).status_code)

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        while len(statuses) < 6:  # they are at work, and a reload may take no time
            assert all(value.is_alive() for value in threads)
            time.sleep(0.001)
        before = running.state.models.by_name["en-de"].worker
        running.call(server.reload_models(running.state, keys))
        after = running.state.models.by_name["en-de"].worker
        assert after is not before
        done.set()
        for item in threads:
            item.join(20)
        assert statuses and set(statuses) == {200}
        keys.write_text("the-second-key")
        running.call(server.reload_models(running.state, keys))
        with running.client() as client:
            assert client.post("/translate", json=BODY | {"api_key": "the-first-key"}).status_code == 401
            assert client.post("/translate", json=BODY | {"api_key": "the-second-key"}).status_code == 200
        keys.unlink()
        running.call(server.reload_models(running.state, keys))
        assert running.state.keys == {"the-second-key"}


def test_a_model_that_dies_is_started_again(folders):
    with serving({"en-de": folders["en-de"]}) as running, running.client() as client:
        model = running.state.models.by_name["en-de"]
        child = model.worker
        assert child is not None
        result: list[object] = []

        def die() -> None:
            child._disconnect()
            child.on_lost(child)
            result.append(running.state.translator("en", "de"))  # which says 503, and not that there is none

        running.loop.call_soon_threadsafe(die)
        end = time.monotonic() + 60
        while model.worker in (child, None) and time.monotonic() < end:
            time.sleep(0.01)
        assert model.worker not in (child, None)
        assert result == [model]
        assert client.post("/translate", json=BODY).status_code == 200


def test_cors_allows_the_listed_origins_only(folders):
    with serving({"en-de": folders["en-de"]}, cors=("https://a.org",)) as running, running.client() as client:
        allowed = client.post("/translate", json=BODY, headers={"origin": "https://a.org"})
        assert allowed.headers["access-control-allow-origin"] == "https://a.org"
        other = client.post("/translate", json=BODY, headers={"origin": "https://b.org"})
        assert "access-control-allow-origin" not in other.headers


def test_the_log_has_no_text_and_no_key(folders, monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(logs, "log", logs.LogWriter(written))
    with (
        serving({"en-de": folders["en-de"]}, keys=frozenset({"secret-key"})) as running,
        running.client() as client,
    ):
        client.post("/translate", json=BODY | {"api_key": "secret-key"})
        client.post("/translate?q=Geheimnis", json=BODY | {"api_key": "wrong-secret"})
        client.post("/Geheimnis", headers={"authorization": "Bearer secret-key"})
        client.post("/translate", content=b'{"q": "Geheimnis"', headers={"content-type": "application/json"})
    logs.flush()
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    assert {line["status"] for line in lines if line["event"] == "request"} == {200, 401, 404, 400}
    assert all({"time", "level", "event"} <= line.keys() for line in lines)
    for word in ("Geheimnis", "secret", "dog"):
        assert word.encode() not in written.getvalue()


def test_answers_on_a_kept_connection_do_not_wait_for_acknowledgements(running):
    with running.client() as client:
        client.get("/health")
        took = []
        for _ in range(10):
            began = time.perf_counter()
            client.get("/health")
            took.append(time.perf_counter() - began)
    assert min(took) < 0.03
