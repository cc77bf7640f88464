"""The engine's libraries: which one is chosen, and what is said where one is missing, damaged or of another version."""

import ctypes
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from heedful.errors import SettingError
from heedful.native import capi, isa, library
from heedful.native.capi import EngineError, open_library
from heedful.native.engine import library_choice

FORCED = os.environ.get(isa.VARIABLE, "")
needs_engine = pytest.mark.skipif(library() is None, reason="there is no compiled engine")


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Nothing is loaded yet, and what is comes from a folder of the test with copies of all libraries."""
    for path in isa.FOLDER.glob(f"*{isa.SUFFIX}"):
        shutil.copy(path, tmp_path)
    monkeypatch.setattr(isa, "FOLDER", tmp_path)
    monkeypatch.delenv(isa.VARIABLE, raising=False)
    library_choice.cache_clear()
    yield tmp_path
    library_choice.cache_clear()


@pytest.mark.skipif(shutil.which("c++") is None or FORCED == isa.OFF, reason="there need not be an engine")
def test_where_there_is_a_compiler_there_is_an_engine() -> None:
    assert library() is not None  # or all tests of it were skipped


@needs_engine
def test_the_highest_instruction_set_is_taken_or_the_one_that_is_asked_for(fresh: Path, monkeypatch) -> None:
    available, _ = isa.supported_instruction_sets()
    assert available[0] == "portable"
    best = isa.choose_library()
    assert best is not None and best.name == available[-1] and best.path.parent == fresh
    for name in available:
        monkeypatch.setenv(isa.VARIABLE, name)
        result = isa.choose_library()
        assert result is not None and result.name == name and name in result.library._name


def test_none_turns_the_engine_off_without_a_notice(fresh: Path, monkeypatch, caplog) -> None:
    monkeypatch.setenv(isa.VARIABLE, "none")
    with caplog.at_level(logging.INFO):
        assert library() is None
    assert not caplog.messages


@pytest.mark.parametrize("wanted", ["sse", "AVX2", " avx2"])
def test_an_unknown_instruction_set_is_refused(fresh: Path, monkeypatch, wanted: str) -> None:
    monkeypatch.setenv(isa.VARIABLE, wanted)
    names = ", ".join(isa.INSTRUCTION_SETS)
    with pytest.raises(SettingError, match=rf"^HEEDFUL_ISA is '{wanted}'; it must be {names} or none"):
        library()


@needs_engine
def test_an_instruction_set_that_the_machine_lacks_is_refused(fresh: Path, monkeypatch) -> None:
    monkeypatch.setattr(isa, "INSTRUCTION_SETS", isa.X86_64)
    monkeypatch.setattr(
        isa, "supported_instruction_sets", lambda: (("portable", "avx2"), "the CPU has no AVX-512 with VNNI")
    )
    monkeypatch.setenv(isa.VARIABLE, "amx")
    with pytest.raises(
        SettingError, match="is amx, but here the CPU has no AVX-512 with VNNI; set it to portable or avx2"
    ):
        library()


@needs_engine
def test_a_library_that_the_compiler_could_not_make_is_passed_over(fresh: Path) -> None:
    available, before = isa.supported_instruction_sets()
    if len(available) == 1:
        pytest.skip("there is one library")
    isa.library_path(available[-1]).unlink()
    fewer, why = isa.supported_instruction_sets()
    highest_missing = f"{isa.library_path(available[-1]).name} was not built"  # unless a higher one was missing before
    assert fewer == available[:-1] and why == (before if before.endswith("was not built") else highest_missing)


def noticed(caplog: pytest.LogCaptureFixture) -> str:
    """The one line that is said of an engine that cannot be had."""
    with caplog.at_level(logging.WARNING):
        assert library() is None
        assert library() is None
    (log,) = caplog.messages
    assert log.startswith("no native engine (") and log.endswith("PyTorch is used, which is slower.")
    return log


def test_a_missing_library_is_one_line(fresh: Path, caplog) -> None:
    isa.library_path("portable").unlink(missing_ok=True)
    assert "portable" in (log := noticed(caplog)) and "is missing; install heedful again" in log


@needs_engine
def test_what_is_no_library_is_one_line(fresh: Path, caplog) -> None:
    isa.library_path("portable").write_bytes(b"no library")
    assert "cannot be loaded" in noticed(caplog)


@needs_engine
@pytest.mark.parametrize("field", ["ABI", "STRUCTURES"])
def test_a_library_of_another_version_is_one_line(fresh: Path, monkeypatch, caplog, field: str) -> None:
    other = {"ABI": capi.ABI + 1, "STRUCTURES": (*capi.STRUCTURES[:-1], capi.WeightStruct)}
    monkeypatch.setattr(capi, field, other[field])
    assert "belongs to another version of heedful" in noticed(caplog)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="another format of libraries")
def test_a_library_of_another_program_is_refused() -> None:
    path = next(path for path in map(Path, _mapped()) if path.name.startswith("libc.so"))
    with pytest.raises(EngineError, match="another version of heedful"):
        open_library(path)


def _mapped() -> list[str]:
    return [line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line]


@needs_engine
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="another format of libraries")
def test_a_library_that_was_cut_off_does_not_kill_the_process(tmp_path: Path) -> None:
    """In a process of its own: if it is loaded, SIGBUS ends it."""
    whole = isa.library_path("portable").read_bytes()
    code = (
        "import sys; from pathlib import Path; from heedful.native.capi import EngineError, open_library\n"
        "for path in map(Path, sys.argv[1:]):\n"
        "    try: open_library(path)\n"
        "    except EngineError as error: print(error)\n"
    )
    cut = []
    for size in (0, 20, 64, 200, 5000, len(whole) // 2, len(whole) * 3 // 4):
        cut.append(tmp_path / f"cut-{size}.so")
        cut[-1].write_bytes(whole[:size])
    done = subprocess.run([sys.executable, "-c", code, *cut], capture_output=True, text=True, check=False)
    log = done.stdout.splitlines()
    assert done.returncode == 0 and len(log) == len(cut), done.stderr
    assert all(
        f"{path} is truncated; install heedful again" in line for path, line in zip(cut[2:], log[2:], strict=True)
    )


def test_structures_have_the_sizes_of_c() -> None:
    """As a C compiler lays them out on every 64-bit system."""
    assert [ctypes.sizeof(item) for item in capi.STRUCTURES] == [116, 32, 56, 64, 40, 96, 16, 56, 40]
