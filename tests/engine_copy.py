"""A copy of the package and its tests with other libraries of the engine: for another CPU, or with sanitizers."""

from __future__ import annotations

import shutil
from pathlib import Path

ROOT = Path(__file__).parents[1]


def copy_with_engine(libraries: Path, copy: Path) -> None:
    """Copy heedful and tests into the folder `copy`, with the engine from the folder `libraries`."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(
        ROOT / "src" / "heedful",
        copy / "heedful",
        ignore=shutil.ignore_patterns("*.so", "__pycache__", "CMake*", "build*"),
    )
    shutil.copytree(ROOT / "tests", copy / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    for library in libraries.glob("*.so"):
        shutil.copy(library, copy / "heedful" / "native")
