"""The compiled part is made once, and its absence is one sentence and not an error."""

import ctypes
import logging
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from heedful.native import build, engine
from heedful.native.build import BuildError, built
from heedful.native.engine import library

needs_compiler = pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is compiled yet, and what is goes to a folder of the test."""
    monkeypatch.setattr(build, "_kept", lambda: tmp_path)
    library.cache_clear()
    yield
    library.cache_clear()


def compiler(folder: Path, script: str) -> str:
    path = folder / "compiler"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def a_library(folder: Path) -> str:
    """A script that notes its call, and makes a library of one function."""
    source = folder / "small.cpp"
    source.write_text('extern "C" int seven() { return 7; }\n')
    find = 'while [ $# -gt 1 ]; do [ "$1" = -o ] && to="$2"; shift; done'
    return compiler(folder, f'echo "$@" >> {folder}/log\n{find}\nc++ -shared -fPIC -o "$to" {source}')


@needs_compiler
def test_where_there_is_a_compiler_there_is_an_engine() -> None:
    assert library() is not None  # or all tests of it were skipped


@needs_compiler
def test_it_is_compiled_and_proven_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", a_library(tmp_path))
    kept, proven = tmp_path / "kept", []

    def proof(loaded: ctypes.CDLL) -> str:
        proven.append(loaded.seven())
        return ""

    kept.mkdir()
    assert built(proof, kept).seven() == built(proof, kept).seven() == 7
    assert proven == [7] and len((tmp_path / "log").read_text().splitlines()) == 1
    assert len(list(kept.iterdir())) == 1
    monkeypatch.setattr(build, "flags", lambda: {"sse2"})  # another CPU has a library of its own
    built(proof, kept)
    assert len(list(kept.iterdir())) == 2


@needs_compiler
def test_what_computes_wrongly_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", a_library(tmp_path))
    kept = tmp_path / "kept"
    kept.mkdir()
    with pytest.raises(BuildError, match="wrong: it is not eight"):
        built(lambda loaded: "" if loaded.seven() == 8 else "it is not eight", kept)
    assert not list(kept.iterdir())


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'engine.cpp:1: what is this' >&2; exit 1", "engine.cpp:1: what is this"),
        ("exit 4", "exit code 4"),
        ('while [ $# -gt 1 ]; do [ "$1" = -o ] && echo no > "$2"; shift; done', "too short"),
    ],
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
    with caplog.at_level(logging.WARNING):
        assert library() is None
        assert library() is None
    assert len(caplog.messages) == 1 and said in caplog.messages[0] and "plain torch" in caplog.messages[0]


def test_a_user_without_a_home_has_an_engine_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(build.Path, "home", homeless)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    assert build._kept().parent == tmp_path


def test_no_compiler_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(BuildError, match="no C\\+\\+ compiler"):
        built(lambda loaded: "", tmp_path)


@pytest.mark.skipif(library() is None, reason="there is no C++ compiler")
def test_the_proof_sees_an_engine_that_strays(monkeypatch: pytest.MonkeyPatch) -> None:
    real = library()
    assert real is not None and engine._wrong(real) == ""
    monkeypatch.setattr(engine, "ACTIVATIONS", ("gelu", "relu"))  # the numbers of each other
    assert "apart from torch" in engine._wrong(real)


def test_a_folder_that_cannot_be_written_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    assert build._kept().parent == tmp_path and oct(build._kept().stat().st_mode)[-3:] == "700"
