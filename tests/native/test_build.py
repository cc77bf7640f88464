"""The compiled part is made once, and its absence is one sentence and not an error."""

import logging
from pathlib import Path

import pytest

from heedful.native import build
from heedful.native.build import BuildError, built, library


@pytest.fixture
def fresh() -> None:
    library.cache_clear()


def compiler(folder: Path, script: str) -> str:
    path = folder / "compiler"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_it_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    script = f'echo "$@" >> {log}; while [ $# -gt 1 ]; do [ "$1" = -o ] && echo made > "$2"; shift; done'
    monkeypatch.setenv("CXX", compiler(tmp_path, script))
    path = built(tmp_path)
    assert path == built(tmp_path) and path.read_text() == "made\n"
    assert len(log.read_text().splitlines()) == 1
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted([path.name, "compiler", "log"])


def test_another_compiler_or_cpu_has_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = 'while [ $# -gt 1 ]; do [ "$1" = -o ] && : > "$2"; shift; done'
    monkeypatch.setenv("CXX", compiler(tmp_path, script))
    first = built(tmp_path)
    monkeypatch.setattr(build, "_cpu", lambda: "flags: sse2")
    assert built(tmp_path) != first


@pytest.mark.parametrize(
    ("script", "said"),
    [("echo 'engine.cpp:1: what is this' >&2; exit 1", "engine.cpp:1: what is this"), ("exit 4", "exit code 4")],
)
def test_a_failure_is_one_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fresh: None,
    script: str,
    said: str,
) -> None:
    monkeypatch.setenv("CXX", compiler(tmp_path, script))
    monkeypatch.setattr(build, "_kept", lambda: tmp_path)
    with pytest.raises(BuildError, match=said):
        built(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert library() is None
        assert library() is None
    assert len(caplog.messages) == 1 and said in caplog.messages[0] and "plain torch" in caplog.messages[0]
    library.cache_clear()


def test_no_compiler_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(BuildError, match="no C\\+\\+ compiler"):
        built(tmp_path)


def test_a_file_that_is_no_library_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fresh: None
) -> None:
    script = 'while [ $# -gt 1 ]; do [ "$1" = -o ] && echo no > "$2"; shift; done'
    monkeypatch.setenv("CXX", compiler(tmp_path, script))
    monkeypatch.setattr(build, "_kept", lambda: tmp_path)
    with caplog.at_level(logging.WARNING):
        assert library() is None
    assert "no compiled engine" in caplog.messages[0]
    library.cache_clear()


def test_a_folder_of_somebody_else_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    assert build._kept().parent == tmp_path and oct(build._kept().stat().st_mode)[-3:] == "700"
