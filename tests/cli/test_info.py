"""`heedful info`, and the variable that chooses the engine's instruction set."""

import sys

import pytest
import torch

from heedful import __version__
from heedful.native.engine import library_choice
from heedful.native.isa import AARCH64, X86_64
from tests.cli.conftest import Call


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("HEEDFUL_ISA", raising=False)
    library_choice.cache_clear()
    yield
    library_choice.cache_clear()


@pytest.mark.skipif(sys.platform != "linux", reason="names of files")
def test_info_says_what_computes_each_kind_of_work(call: Call) -> None:
    done = call("info")
    assert done.code == 0 and done.out.startswith(f"heedful {__version__}, Python 3.")
    assert f"torch: {torch.__version__}, CPU capability {torch.backends.cpu.get_cpu_capability()}" in done.out
    if (engine := library_choice()) is not None:
        assert f"engine: {engine.path}\ninstruction set: {engine.name}; available: portable" in done.out
        assert "translate, summarize: engine, int8\nscore, align: engine, float32\n" in done.out


def test_the_help_lists_every_instruction_set(call: Call) -> None:
    listed = " ".join(call("info", "--help").out.split())
    assert f"(x86-64: {', '.join(X86_64)}; aarch64: {', '.join(AARCH64)})" in listed


def test_a_lower_instruction_set_is_named(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    if library_choice() is None:
        pytest.skip("there is no compiled engine")
    library_choice.cache_clear()
    monkeypatch.setenv("HEEDFUL_ISA", "portable")
    assert "libheedful-portable" in (done := call("info")).out and "instruction set: portable;" in done.out


def test_without_the_engine_torch_computes(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEEDFUL_ISA", "none")
    assert "engine: none\n" in (done := call("info")).out and "translate, summarize: torch\n" in done.out


def test_an_unknown_instruction_set_is_one_sentence(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEEDFUL_ISA", "sse9")
    done = call("info")
    assert done.code == 2 and not done.out
    assert done.err.startswith("error: HEEDFUL_ISA is 'sse9'; it must be portable, avx2,")
