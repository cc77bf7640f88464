"""HTTP through a raw socket: what clients of other kinds send, and what attackers do."""

from __future__ import annotations

import http.client
import json
import select
import socket
import time

import pytest

from tests.serve.conftest import TEXT, response

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


def test_expect_100_continue_is_answered(running):
    with socket.create_connection(("127.0.0.1", running.port), 60) as connection:
        head = b"POST /translate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nexpect: 100-continue\r\n"
        connection.sendall(head + b"content-length: %d\r\n\r\n" % len(BODY))
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(BODY)
        assert response(connection).startswith(b"HTTP/1.1 200 ")


def test_old_clients_have_their_connection_closed_and_others_after_a_while(running, monkeypatch):
    monkeypatch.setattr(running.server.config, "timeout_keep_alive", 0.3)
    for version, headers in ((b"1.0", b""), (b"1.1", b"connection: close\r\n"), (b"1.1", b"")):
        with socket.create_connection(("127.0.0.1", running.port), 20) as connection:
            for _ in range(2 if version == b"1.1" and not headers else 1):
                connection.sendall(b"GET /health HTTP/%b\r\nhost: x\r\n%b\r\n" % (version, headers))
                got = response(connection)
                assert got.endswith(b'\r\n\r\n{"status":"ok"}')
            assert (b"connection: close" in got.lower()) == (version == b"1.0" or bool(headers))
            assert connection.recv(65536) == b""


def test_what_follows_on_a_connection_is_answered_in_order(running):
    with socket.create_connection(("127.0.0.1", running.port), 60) as connection:
        post = b"POST /translate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        requests = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n" + post % len(BODY) + BODY
        requests += b"GET /nowhere HTTP/1.1\r\nhost: x\r\n\r\n" + post % len(BODY) + BODY
        for at in range(0, len(requests), 50):
            connection.sendall(requests[at : at + 50])
            time.sleep(0.002)
        got = b""
        while got.count(b"HTTP/1.1 ") < 4 and (piece := connection.recv(65536)):
            got += piece
    assert [item[:3] for item in got.split(b"HTTP/1.1 ")[1:]] == [b"200", b"200", b"404", b"200"]


HEALTH = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
LAST = b"GET /ready HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
INNER = b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n"  # a request inside a body, which is not to be answered
UPGRADE = b"connection: upgrade\r\nupgrade: h2c\r\n"
WEBSOCKET = b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: AAAA\r\n"


def post(body: bytes, headers: bytes = b"", length: int | None = None) -> bytes:
    head = b"POST /translate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n" + headers
    return head + b"content-length: %d\r\n\r\n" % (len(body) if length is None else length) + body


def answers(running, *pieces: bytes) -> list[tuple[int, bytes]]:
    """Status and body of every answer until the server closes the connection."""
    data = b""
    with socket.create_connection(("127.0.0.1", running.port), 20) as connection:
        for piece in pieces:
            connection.sendall(piece)
            if select.select([connection], [], [], 0.02)[0]:
                data += (received := connection.recv(65536))
                if not received:
                    break
        while received := connection.recv(65536):
            data += received
    result = []
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        status, *lines = head.split(b"\r\n")
        length = dict(line.lower().split(b": ", 1) for line in lines).get(b"content-length")
        size = len(data) if length is None else int(length)
        result.append((int(status.split()[1]), data[:size]))
        data = data[size:]
    return result


def head(headers: bytes = b"") -> bytes:
    """What stands before a body that is a request itself."""
    return post(b"", headers, len(INNER))


CHUNKED = b"POST /translate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n"
SPLIT = head(UPGRADE).index(b"upgrade: h2c") + 4
SMUGGLED = {  # what is sent, read by read, and the statuses of the answers
    "an Upgrade header": ([head(UPGRADE), INNER, LAST], [400, 200]),
    "two Upgrade headers": ([head(UPGRADE + b"upgrade: websocket\r\n"), INNER, LAST], [400, 200]),
    "an Upgrade header split over reads": ([head(UPGRADE)[:SPLIT], head(UPGRADE)[SPLIT:], INNER, LAST], [400, 200]),
    "a pipelined request after an Upgrade": ([head(UPGRADE) + INNER + HEALTH, LAST], [400, 200, 200]),
    "an Upgrade after a request": ([HEALTH + head(UPGRADE), INNER, LAST], [200, 400, 200]),
    "a WebSocket": ([head(WEBSOCKET), INNER, LAST], [400, 200]),
    "CONNECT": ([head().replace(b"POST /translate", b"CONNECT x:80"), INNER, LAST], [404, 200]),
    "an Upgrade in a body that is refused": ([post(b"\r\nupgrade: x" + INNER)[:-9], INNER[-9:], LAST], [400, 200]),
    "a body that is too large": (
        [post(b"", length=2_000_000), INNER * 20_000, b" " * (2_000_000 - 20_000 * len(INNER)), post(BODY), LAST],
        [413, 200, 200],
    ),
    "a body of an unknown address": ([head().replace(b"/translate", b"/nowhere"), INNER, LAST], [404, 200]),
    "a length and chunks": ([CHUNKED + b"content-length: 5\r\n\r\n0\r\n\r\n" + INNER + LAST], [400]),
    "two lengths": ([head(b"content-length: 3\r\n") + INNER + LAST], [400]),
    "a length with a sign": ([head().replace(b"content-length: ", b"content-length: +") + INNER + LAST], [400]),
    "a coding that is not known": ([CHUNKED.replace(b": chunked", b": x, chunked") + b"\r\n" + INNER + LAST], [400]),
    "a space before the colon": ([head().replace(b"content-length:", b"content-length :") + INNER + LAST], [400]),
}  # fmt: skip


@pytest.mark.parametrize("pieces, statuses", SMUGGLED.values(), ids=SMUGGLED)
def test_a_body_is_never_read_as_a_request(running, pieces, statuses):
    result = answers(running, *pieces)
    assert [status for status, _ in result] == statuses
    assert not any(b'"object":"list"' in body for _, body in result)
    if statuses[-1] == 200:
        assert result[-1][1] == b'{"status":"ready"}'


@pytest.mark.parametrize("hosts", [b"", b"host: x\r\nhost: x\r\n", b"host: x\r\nHost: y\r\n"])
def test_a_request_without_a_host_or_with_two_is_refused(running, hosts):
    assert [status for status, _ in answers(running, b"GET /health HTTP/1.1\r\n%b\r\n" % hosts + LAST)] == [400]


def test_an_old_client_needs_no_host(running):
    assert answers(running, b"GET /health HTTP/1.0\r\n\r\n") == [(200, b'{"status":"ok"}')]
