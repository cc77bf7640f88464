"""The direction of imports: a module imports only what stands above it in the import order."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import heedful

ROOT = Path(heedful.__file__).parent
ORDER = [
    "errors", "packages", "files", "config", "text", "audio", "formats", "data", "ops", "model", "search", "storage",
    "native", "inference", "interop", "evaluation", "training", "inside", "serve", "demo", "cli", "__main__",
]  # fmt: skip
ALLOWED_ALONE = {"model": {"ops", "config"}, "demo": set(), "ops": set(), "text": {"errors", "files"}}


def package_of(module: str) -> str:
    return module.split(".")[1] if module.startswith("heedful.") else ""


def imports(path: Path) -> set[str]:
    """Packages of heedful that a file imports, wherever in the file."""
    packages = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            packages |= {package_of(alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "heedful":
            packages |= {alias.name for alias in node.names if alias.name in ORDER}
        elif isinstance(node, ast.ImportFrom) and node.module:
            packages.add(package_of(node.module))
    return packages - {""}


FILES = [path for path in sorted(ROOT.rglob("*.py")) if path != ROOT / "__init__.py"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_from_above(path: Path) -> None:
    parts = path.relative_to(ROOT).parts
    mine = parts[0].removesuffix(".py")
    assert mine in ORDER, f"{mine} has no place in the import order"
    for other in imports(path) - {mine}:
        assert ORDER.index(other) < ORDER.index(mine), f"{mine} imports {other}, which stands below it"
        if mine in ALLOWED_ALONE:
            assert other in ALLOWED_ALONE[mine], f"{mine} is not to know {other}"


def test_the_package_lists_what_it_offers_and_nothing_else() -> None:
    assert dir(heedful) == sorted(heedful.__all__)
    assert {"train", "load", "record", "errors", "inside", "Translator"} <= set(dir(heedful))
    assert all(getattr(heedful, name) is not None for name in heedful.__all__)
    assert callable(heedful.train)
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        heedful.trian  # noqa: B018


def test_importing_the_package_loads_neither_torch_nor_its_own_modules() -> None:
    code = "import sys, heedful; dir(heedful); print([n for n in sys.modules if n in ('torch', 'numpy', 'pydantic')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("command", [["--help"], ["train", "--help"], ["translate", "--help"], ["settings"]])
def test_help_loads_neither_torch_nor_settings_nor_other_commands(command: list[str]) -> None:
    code = (
        "import sys; sys.argv = ['heedful', *sys.argv[1:]]\n"
        "import atexit; atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "from heedful.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, check=True)
    modules = done.stderr.split()
    assert "torch" not in modules
    assert ("heedful.config" in modules) == (command == ["settings"])
    assert ("heedful.cli.serve" in modules) == (command == ["--help"])
    assert done.stdout
