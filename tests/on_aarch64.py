"""Run the native tests on an emulated aarch64 CPU: `python tests/on_aarch64.py [pytest's options and files]`.

The engine is cross-compiled, and a Python for aarch64 runs the tests in user-mode emulation. Everything is kept in
build/aarch64: Debian's packages of Python, wheels of the pinned dependencies, and a copy of the package. Needs
qemu-aarch64 (qemu-user), aarch64-linux-gnu-g++ (g++-aarch64-linux-gnu), cmake, apt-get, dpkg-deb and a network.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from engine_copy import ROOT, copy_with_engine

BUILD = ROOT / "build" / "aarch64"
SYSTEM, SITE, ENGINE, COPY = BUILD / "system", BUILD / "site", BUILD / "engine", BUILD / "copy"
PYTHON = BUILD / "python"  # a script that starts the emulated interpreter
TOOLS = ("qemu-aarch64", "aarch64-linux-gnu-g++", "cmake", "apt-get", "dpkg-deb")
SUITE, VERSION = "bookworm", "3.11"  # of Debian, and of its Python
INTERPRETER = SYSTEM / "usr" / "bin" / f"python{VERSION}"
DEBIAN = [
    f"python{VERSION}-minimal", f"libpython{VERSION}-minimal", f"libpython{VERSION}-stdlib", "libc6", "libgcc-s1",
    "libstdc++6", "libgomp1", "zlib1g", "libbz2-1.0", "liblzma5", "libffi8", "libssl3", "libexpat1", "libsqlite3-0",
    "libuuid1",
]  # fmt: skip
TORCH = "torch==2.10.0"  # later wheels for aarch64 need CUDA's libraries
WHEELS = [
    "numpy", "tokenizers", "safetensors", "pydantic", "pydantic-core", "annotated-types", "typing-inspection",
    "typing-extensions", "filelock", "fsspec", "sympy", "mpmath", "jinja2", "markupsafe", "networkx", "pytest",
    "pytest-timeout", "pytest-xdist", "execnet", "iniconfig", "pluggy", "packaging", "pygments", "hypothesis",
    "sortedcontainers", "rich", "markdown-it-py", "mdurl", "typer", "click", "shellingham", "annotated-doc",
    "polib", "turbohtml", "soundfile", "soxr", "cffi", "pycparser",
]  # fmt: skip
NATIVE = ["tests/native", "tests/ops"]
INSTRUCTION_SETS = ("portable", "dotprod")


def main(arguments: list[str]) -> int:
    """0 if the tests passed with every instruction set, or if a tool is missing."""
    missing = [tool for tool in TOOLS if find_tool(tool) is None]
    if missing:
        print(f"{', '.join(missing)} not found: the tests for aarch64 are skipped.")
        return 0
    for prepared, prepare in ((INTERPRETER, fetch_system), (SITE, fetch_wheels)):
        if not prepared.exists():
            prepare()
    build_engine()
    write_python()
    results = []
    for name in INSTRUCTION_SETS:
        print(f"== aarch64, HEEDFUL_ISA={name}", flush=True)
        began = time.monotonic()
        options = arguments or ["-m", "not long", *NATIVE]
        command = [str(PYTHON), "-m", "pytest", "-p", "no:cacheprovider", "--timeout", "1200", *options]
        code = subprocess.run(command, cwd=COPY, env=os.environ | {"HEEDFUL_ISA": name}, check=False).returncode
        results.append((name, code, time.monotonic() - began))
    for name, code, seconds in results:
        print(f"aarch64 {name:10} {'passed' if code == 0 else 'FAILED'} after {seconds:.0f} s")
    return int(any(code for _, code, _ in results))


def find_tool(name: str) -> str | None:
    return shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")


def run(*command: object, cwd: Path = ROOT) -> None:
    subprocess.run([str(word) for word in command], cwd=cwd, check=True)


def find_mirror() -> str:
    """Where this machine's own packages of SUITE come from."""
    words = ["--format", "$(REPO_URI)", "Identifier: Packages", f"Release: {SUITE}"]
    mirrors = subprocess.run(
        ["apt-get", "indextargets", *words], capture_output=True, text=True, check=True
    ).stdout.split()
    if not mirrors:
        sys.exit(f"apt-get has no source for Debian {SUITE}; add one to run the tests for aarch64")
    return mirrors[0]


def fetch_system() -> None:
    """Download and unpack Debian's Python for aarch64; nothing is installed on this machine."""
    apt, packages = BUILD / "apt", BUILD / "packages"
    for folder in (apt / "lists" / "partial", apt / "cache" / "archives" / "partial", packages, SYSTEM):
        folder.mkdir(parents=True, exist_ok=True)
    key = "/usr/share/keyrings/debian-archive-keyring.gpg"
    source = f"deb [arch=arm64 signed-by={key}] {find_mirror()} {SUITE} main\n"
    (apt / "sources.list").write_text(source, encoding="utf-8")
    settings = {
        "APT::Architecture": "arm64",
        "APT::Architectures::": "arm64",
        "Dir::State::Lists": apt / "lists",
        "Dir::State::status": "/dev/null",
        "Dir::Cache": apt / "cache",
        "Dir::Etc::SourceList": apt / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "APT::Sandbox::User": "root",
    }
    options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    run("apt-get", "-qq", *options, "update")
    run("apt-get", "-qq", *options, "download", *DEBIAN, cwd=packages)
    for package in sorted(packages.glob("*.deb")):
        run("dpkg-deb", "-x", package, SYSTEM)


def fetch_wheels() -> None:
    """Install the wheels for aarch64 into a folder, in the versions of constraints.txt."""
    partial = SITE.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    platforms = [word for level in ("2_28", "2_17") for word in ("--platform", f"manylinux_{level}_aarch64")]
    target = ["--target", partial, "--python-version", VERSION, "--only-binary=:all:", *platforms]
    run(*pip, *target, TORCH)
    run(*pip, *target, "-c", "constraints.txt", *WHEELS)
    partial.rename(SITE)


def build_engine() -> None:
    """Cross-compile the engine, and copy the package and its tests with these libraries."""
    options = {"SYSTEM_NAME": "Linux", "SYSTEM_PROCESSOR": "aarch64", "CXX_COMPILER": "aarch64-linux-gnu-g++"}
    cmake, package = find_tool("cmake"), ROOT / "src" / "heedful"
    settings = [f"-DCMAKE_{name}={value}" for name, value in options.items()]
    run(cmake, "-S", package / "native" / "csrc", "-B", ENGINE, "-DSKBUILD=ON", *settings)
    run(cmake, "--build", ENGINE, "--parallel")
    copy_with_engine(ENGINE, COPY)


def write_python() -> None:
    """The script that starts the emulated interpreter; tests that start Python start this script too."""
    settings = f"PYTHONPATH='{COPY}:{SITE}' PYTHONDONTWRITEBYTECODE=1"
    PYTHON.write_text(
        f"#!/bin/sh\n{settings} exec qemu-aarch64 -L '{SYSTEM}' '{INTERPRETER}' \"$@\"\n", encoding="utf-8"
    )
    PYTHON.chmod(0o755)
    (COPY / "sitecustomize.py").write_text(f"import sys\n\nsys.executable = {str(PYTHON)!r}\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
