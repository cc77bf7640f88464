"""The program as an operator runs it: a process that starts, reloads, loses a model, and ends as it should."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from tests.cli.conftest import call, process

__all__ = ["call"]
BODY = {"q": "The dog sleeps.", "source": "en", "target": "de"}


def start(*words: object, **variables: str) -> tuple[subprocess.Popen[str], str]:
    """A running server and its address."""
    server = subprocess.Popen(
        [sys.executable, "-m", "heedful", "serve", "--port", "0", *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | variables,
    )  # fmt: skip
    assert server.stdout is not None
    line = server.stdout.readline()
    result = re.match(r"(http://127\.0\.0\.1:\d+) serves ", line)
    assert result, line + server.communicate()[1]
    return server, result[1]


def test_it_serves_reloads_revives_and_drains(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(folders["en-de"], tmp_path / "en-de"))
    server, url = start(f"en-de={folder}", "--drain", 12, HEEDFUL_API_KEYS="first-of-keys,second-key")
    statuses: list[object] = []
    try:
        with httpx.Client(base_url=url, headers={"authorization": "Bearer second-key"}, timeout=30) as client:
            assert client.post("/translate", json=BODY).json()["translatedText"]
            assert httpx.post(f"{url}/translate", json=BODY).status_code == 401
            (model,) = _children(server.pid)
            server.send_signal(signal.SIGHUP)
            _until(lambda: _children(server.pid) not in ([model], []) and model not in _children(server.pid))
            assert client.post("/translate", json=BODY).status_code == 200
            (model,) = _children(server.pid)
            away = folder.rename(tmp_path / "away")  # so that it stays not ready, however fast this machine restarts it
            os.kill(model, signal.SIGKILL)
            _until(lambda: client.get("/ready").status_code == 503)
            away.rename(folder)
            _until(lambda: client.get("/ready").status_code == 200)
            assert client.post("/translate", json=BODY).status_code == 200
        clients = [threading.Thread(target=_ask, args=(url, statuses)) for _ in range(4)]
        for item in clients:
            item.start()
        _until(lambda: len(statuses) >= 8)
        began = time.monotonic()
        server.terminate()
        _, errors = server.communicate(timeout=20)
        assert time.monotonic() - began < 12
        for value in clients:
            value.join(10)
    finally:
        server.kill()
        server.wait()
    assert server.returncode == 0
    assert set(statuses) == {200}, errors
    events = [json.loads(line)["event"] for line in errors.splitlines()]
    assert {"model reloaded", "worker process died, restarting", "server is draining", "server stopped"} <= set(events)
    assert "key" not in errors


def test_an_unread_log_blocks_nothing(folders: dict[str, Path]) -> None:
    server, url = start(f"en-de={folders['en-de']}", "--drain", 5)
    try:
        with httpx.Client(base_url=url, timeout=10) as client:
            for _ in range(1000):  # more than a pipe holds
                assert client.get("/models").status_code == 200
            assert client.post("/translate", json=BODY).status_code == 200
        server.terminate()
        assert server.wait(15) == 0
    finally:
        server.kill()
        lines = server.communicate()[1].splitlines()
    assert len(lines) > 100 and all(json.loads(line)["event"] == "request" for line in lines[:-1])


def _ask(url: str, statuses: list[object]) -> None:
    with httpx.Client(base_url=url, headers={"authorization": "Bearer first-of-keys"}, timeout=30) as client:
        while True:
            try:
                statuses.append(client.post("/translate", json=BODY).status_code)
            except httpx.ConnectError:
                return
            except httpx.HTTPError as error:
                statuses.append(repr(error))
                return


def _children(pid: int) -> list[int]:
    """The processes of models."""
    result = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        words = Path(f"/proc/{child}/cmdline").read_bytes()
        if b"spawn_main" in words:
            result.append(int(child))
    return result


def _until(true, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.2)


@pytest.mark.parametrize(
    "words, says",
    [
        (["nowhere"], "nowhere does not exist"),
        (["a=x", "a=y"], "two models are named a"),
        (["b b=x"], "is not a valid model name"),
        (["x", "--port", "70000"], "--port is 70000"),
        (["x", "--queue", "0"], "--queue is 0"),
        (["x", "--precision", "int3"], "--precision is 'int3'"),
        (["x", "--keys", "no-keys"], "no-keys cannot be read"),
        (["x", "--cors", "a.org"], "--cors is 'a.org'"),
        (["x", "--host", "300.1.1.1"], "cannot listen on 300"),
    ],
)
def test_wrong_use_is_one_sentence(call, words, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "heedful.serve.logs.start_logging", lambda: None
    )  # the log of this process belongs to the tests
    done = call("serve", *words, "--port", "0") if "--port" not in words else call("serve", *words)
    assert done.code == 2
    assert says in done.err
    assert done.err.count("\n") == 1


def test_a_port_in_use_is_said_before_models_are_loaded(running, folders):
    done = process("serve", folders["en-de"], "--port", running.port)
    assert done.code == 2
    assert done.err == f"error: port {running.port} of 127.0.0.1 is in use; choose another with --port.\n"
