"""The compiled part: made of its sources by the machine's C++ compiler when it is first needed, and kept for the user.

It is kept only if it computes what torch computes, so a compiler or a CPU that nobody has tried cannot do harm.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from heedful.ops.processor import flags

SOURCES = Path(__file__).parent
FLAGS = ["-O3", "-std=c++17", "-march=native", "-ffp-contract=off", "-fno-math-errno", "-fPIC", "-shared"]
PATIENCE = 180  # seconds for the compiler

log = logging.getLogger("heedful")


class BuildError(Exception):
    """Why there is no library."""


Proof = Callable[[ctypes.CDLL], str]  # nothing, or what is wrong with a library


def built(proof: Proof, kept: Path | None = None) -> ctypes.CDLL:
    """The library; compiled if this CPU, compiler and version have none yet, and kept if it stands the proof."""
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CXX", ""), "c++", "g++", "clang++"))), None)
    if compiler is None:
        raise BuildError("there is no C++ compiler; install one, such as g++")
    path = (kept or _kept()) / f"heedful-{_key(compiler)}.so"
    if not path.exists():
        log.info("compiling the engine for this CPU, once")
        _compile(compiler, path, proof)
    return _loaded(path)


def _loaded(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise BuildError(str(error)) from None


def _compile(compiler: str, path: Path, proof: Proof) -> None:
    """Complete or not at all, whoever else compiles it at the same time."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / path.name
        command = [compiler, *FLAGS, str(SOURCES / "engine.cpp"), "-o", str(made)]
        problems = [_run([*command, "-fopenmp"]), ""]
        if problems[0]:  # some compilers come without OpenMP, which only a second thread needs
            problems[1] = _run(command)
        if problems[1]:
            raise BuildError(f"{compiler} failed: {problems[1]}")
        if wrong := proof(_loaded(made)):
            raise BuildError(f"what {compiler} made is wrong: {wrong}")
        made.replace(path)


def _run(command: list[str]) -> str:
    """Nothing, or what went wrong."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return f"it took more than {PATIENCE} s"
    except OSError as error:
        return str(error.strerror)
    said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return said[0] if done.returncode else ""


def _kept() -> Path:
    """A folder of the user's own; one that lasts as long as the machine runs if there is none."""
    user = getattr(os, "getuid", lambda: 0)()  # Windows has no such numbers
    folders = [Path(tempfile.gettempdir()) / f"heedful-{user}"]
    with suppress(RuntimeError):  # not every user has a home
        folders.insert(0, Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "heedful")
    for folder in folders:
        try:
            folder.mkdir(parents=True, mode=0o700, exist_ok=True)
            if folder.stat().st_uid == user and os.access(folder, os.W_OK):
                return folder
        except OSError:
            continue
    raise BuildError(f"{folders[0]} cannot be written to")


def _key(compiler: str) -> str:
    """What a library depends on: its sources, the compiler and the CPU."""
    known = hashlib.sha256(" ".join(FLAGS).encode())
    for source in [*sorted(SOURCES.glob("*.h")), SOURCES / "engine.cpp"]:
        known.update(source.read_bytes())
    file = Path(compiler).resolve()
    cpu = " ".join(sorted(flags())) or platform.processor()
    known.update(f"{file} {file.stat().st_mtime_ns} {platform.machine()} {cpu}".encode())
    return known.hexdigest()[:16]
