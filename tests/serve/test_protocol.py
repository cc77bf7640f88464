"""HTTP as clients speak it that are not ours, and alarms."""

from __future__ import annotations

import asyncio
import http.client
import json
import random
import socket
import time

from heedful.serve.alarms import Alarms
from tests.serve.conftest import TEXT

BODY = json.dumps({"q": TEXT, "source": "en", "target": "de"}).encode()
JSON = {"content-type": "application/json"}


def asked(running, method: str, path: str, body=None, headers=None, **more) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=60)
    connection.request(method, path, body, headers or {}, **more)
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    return answer, data


def test_head_is_get_without_a_body(running):
    get, data = asked(running, "GET", "/languages")
    head, nothing = asked(running, "HEAD", "/languages")
    assert data and not nothing
    assert head.status == 200 and head.headers["content-length"] == get.headers["content-length"] == str(len(data))


def test_a_body_in_chunks_is_the_same_as_in_one(running):
    _, whole = asked(running, "POST", "/translate", BODY, JSON)
    chunks = (BODY[at : at + 7] for at in range(0, len(BODY), 7))
    answer, data = asked(running, "POST", "/translate", chunks, JSON, encode_chunked=True)
    assert answer.status == 200 and data == whole


def test_who_waits_to_be_asked_for_a_body_is_asked(running):
    with socket.create_connection(("127.0.0.1", running.port), 60) as connection:
        head = b"POST /translate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nexpect: 100-continue\r\n"
        connection.sendall(head + b"content-length: %d\r\n\r\n" % len(BODY))
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(BODY)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_old_clients_have_their_connection_closed_and_others_after_a_while(running, monkeypatch):
    monkeypatch.setattr(running.server.config, "timeout_keep_alive", 0.3)
    for version, headers in ((b"1.0", b""), (b"1.1", b"connection: close\r\n"), (b"1.1", b"")):
        with socket.create_connection(("127.0.0.1", running.port), 20) as connection:
            for _ in range(2 if version == b"1.1" and not headers else 1):
                connection.sendall(b"GET /health HTTP/%b\r\nhost: x\r\n%b\r\n" % (version, headers))
                got = connection.recv(65536)
                assert got.endswith(b'\r\n\r\n{"status":"ok"}')
            assert (b"connection: close" in got) == (version == b"1.0" or bool(headers))
            assert connection.recv(65536) == b""


def test_what_follows_on_a_connection_is_answered_in_order(running):
    with socket.create_connection(("127.0.0.1", running.port), 60) as connection:
        post = b"POST /translate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        asked = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n" + post % len(BODY) + BODY
        asked += b"GET /nowhere HTTP/1.1\r\nhost: x\r\n\r\n" + post % len(BODY) + BODY
        for at in range(0, len(asked), 50):
            connection.sendall(asked[at : at + 50])
            time.sleep(0.002)
        got = b""
        while got.count(b"HTTP/1.1 ") < 4 and (piece := connection.recv(65536)):
            got += piece
    assert [each[:3] for each in got.split(b"HTTP/1.1 ")[1:]] == [b"200", b"200", b"404", b"200"]


def test_alarms_ring_when_they_are_due_unless_they_are_called_off():
    rang: dict[int, float] = {}

    async def main() -> dict[int, float]:
        loop, alarms, chance = asyncio.get_running_loop(), Alarms(), random.Random(1)
        due = {key: chance.uniform(0.0, 0.4) for key in range(200)}
        began = loop.time()
        for key, seconds in due.items():
            alarms.set(key, seconds, lambda key=key: rang.setdefault(key, loop.time() - began))
        alarms.set(0, 9.0, lambda: rang.setdefault(-1, 0.0))  # in place of the one before
        assert [alarms.off(key) for key in range(100)] == [True] * 100
        await asyncio.sleep(0.2)
        alarms.set(200, 0.05, lambda: rang.setdefault(200, loop.time() - began))
        while alarms.due:
            await asyncio.sleep(0.01)
        assert not alarms.off(150)
        return due

    due = asyncio.run(main())
    assert rang.keys() == set(range(100, 201))
    assert all(rang[key] >= seconds for key, seconds in due.items() if key in rang)
