"""Names are unique in the package: classes, files and long signatures occur once. Sentences name their subjects."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import heedful

PACKAGE = Path(heedful.__file__).parent
ROOT = PACKAGE.parent.parent
FILES = sorted(PACKAGE.rglob("*.py"))
TEXTS = {".py", ".md", ".js", ".html", ".css", ".h", ".cpp", ".toml"}
MAX_PARAMETERS = 10
MAX_REPEATED_PARAMETERS = 6  # of a signature that occurs twice
RIDDLES = re.compile(r"whoever|somebody|nobody|everybody", re.IGNORECASE)


def nodes(*kinds: type[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
    """Every node of these kinds in the package, with its file."""
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, kinds):
                yield str(path.relative_to(PACKAGE)), node


def repeated(places: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name: files for name, files in places.items() if len(files) > 1}


def test_no_class_name_occurs_twice() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for file, node in nodes(ast.ClassDef):
        assert isinstance(node, ast.ClassDef)
        places[node.name].append(f"{file}:{node.lineno}")
    assert repeated(places) == {}


def test_no_file_name_occurs_twice() -> None:
    """Except command files, which may have the name of the module that they call."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in FILES:
        if path.name != "__init__.py" and path.parent.name != "cli":
            places[path.name].append(str(path.relative_to(PACKAGE)))
    assert repeated(places) == {}


def signatures() -> Iterator[tuple[str, list[str]]]:
    """Every function of the package, and the names of its parameters."""
    for file, node in nodes(ast.FunctionDef, ast.AsyncFunctionDef):
        assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        yield f"{file}:{node.name}", [argument.arg for argument in arguments if argument.arg not in ("self", "cls")]


def test_no_long_signature_occurs_twice() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for place, names in signatures():
        if len(names) > MAX_REPEATED_PARAMETERS:
            places[", ".join(names)].append(place)
    assert repeated(places) == {}


def test_no_signature_has_more_than_ten_parameters() -> None:
    assert [place for place, names in signatures() if len(names) > MAX_PARAMETERS] == []


def test_sentences_name_their_subjects() -> None:
    paths = [path for path in PACKAGE.rglob("*") if path.suffix in TEXTS]
    paths += [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    lines = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in paths
        if path.is_file()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if RIDDLES.search(line)
    ]
    assert lines == []


def test_errors_that_python_users_see_name_no_bare_command_option() -> None:
    """Outside `cli` and `serve` a message names arguments and settings, or the option and its Python form."""
    bare = []
    for file, node in nodes(ast.Constant):
        if not isinstance(node, ast.Constant) or file.startswith(("cli/", "serve/")):
            continue
        text = re.sub("[^`]*`|torchrun .*", "", node.value) if isinstance(node.value, str) else ""
        if re.search(r"(?<![\w-])--[a-z]", text) and "resume=True" not in text:
            bare.append(f"{file}:{node.lineno}: {node.value}")
    assert bare == []
