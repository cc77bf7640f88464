"""Run the native tests with sanitizers in the engine: `python tests/sanitized.py [pytest's options and files]`.

Without arguments the tests of SANITIZERS run; arguments take their place, `-k` included, so name files with options.

AddressSanitizer and UndefinedBehaviorSanitizer see the whole engine with its OpenMP threads. ThreadSanitizer does not
know the barriers of GCC's OpenMP runtime, so it sees an engine without OpenMP, whose searches run in Python's threads.
Needs g++ and its sanitizer libraries, and cmake.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from engine_copy import ROOT, copy_with_engine

BUILD = ROOT / "build" / "sanitize"
INSTRUCTION_SETS = ("portable", "avx2")  # x86-64 with AVX2 is assumed; other sets share the code around the kernels


class Sanitizer(NamedTuple):
    """What to compile with, what to load before Python, its options, and the tests."""

    flags: str
    preload: tuple[str, ...]
    options: dict[str, str]
    tests: tuple[str, ...]


SANITIZERS = (
    Sanitizer(
        "address,undefined",
        ("libasan.so", "libubsan.so", "libstdc++.so"),
        {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"},  # Python keeps memory until it ends
        # AddressSanitizer ends a process whose allocation fails, where the engine throws; a library with debug
        # information may be cut behind its segments
        ("tests/native", "-k", "not allocation_that_fails and not finds_no_memory and not cut_off"),
    ),
    Sanitizer(
        "thread",
        ("libtsan.so", "libstdc++.so"),
        {"TSAN_OPTIONS": "halt_on_error=1:exitcode=66"},
        ("tests/native/test_engine.py", "-k", "pool or threads"),
    ),
)


def main(arguments: list[str]) -> int:
    """0 if all runs passed, or if a tool is missing."""
    cmake = shutil.which("cmake", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if cmake is None or shutil.which("g++") is None:
        print("g++ or cmake not found: the tests with sanitizers are skipped.")
        return 0
    results = []
    for sanitizer in SANITIZERS:
        folder = BUILD / sanitizer.flags.replace(",", "-")
        build(cmake, sanitizer, folder / "engine")
        copy_with_engine(folder / "engine", folder / "copy")
        for name in INSTRUCTION_SETS:
            named = f"{sanitizer.flags}, HEEDFUL_ISA={name}"
            selection = arguments or ["-m", "not long", *sanitizer.tests]
            print(f"== {named}: pytest {shlex.join(selection)}", flush=True)
            began = time.monotonic()
            code = run(sanitizer, name, folder / "copy", selection)
            results.append((named, code, time.monotonic() - began))
    for named, code, seconds in results:
        print(f"{named:40} {'passed' if code == 0 else 'FAILED'} after {seconds:.0f} s")
    return int(any(code for _, code, _ in results))


def build(cmake: str, sanitizer: Sanitizer, engine: Path) -> None:
    source = ROOT / "src" / "heedful" / "native" / "csrc"
    settings = ["-DSKBUILD=ON", "-DCMAKE_CXX_COMPILER=g++", f"-DHEEDFUL_SANITIZE={sanitizer.flags}"]
    subprocess.run([cmake, "-S", source, "-B", engine, *settings], check=True)
    targets = [f"heedful-{name}" for name in INSTRUCTION_SETS]
    subprocess.run([cmake, "--build", engine, "--parallel", "--target", *targets], check=True)


def run(sanitizer: Sanitizer, name: str, copy: Path, options: list[str]) -> int:
    find = ["g++", "-print-file-name={}"]
    libraries = [
        subprocess.run([find[0], find[1].format(name)], capture_output=True, text=True, check=True).stdout.strip()
        for name in sanitizer.preload
    ]
    changes = {"HEEDFUL_ISA": name, "LD_PRELOAD": " ".join(libraries), "PYTHONPATH": str(copy), **sanitizer.options}
    fixed_addresses = (
        ["setarch", "-R"] if shutil.which("setarch") else []
    )  # some kernels place memory where tsan keeps its own
    command = [
        *fixed_addresses,
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--timeout",
        "1200",
        *options,
    ]
    return subprocess.run(command, cwd=copy, env=os.environ | changes, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
