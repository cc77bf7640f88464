"""What docs/paper.md says is there: every name it points to, every setting it gives, every count it prints."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
import torch

from heedful import config
from heedful.model.transformer import build_model

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
NAMES = sorted(set(re.findall(r"`([\w/]+\.py)::([\w.]+)`", PAGE)))
ROWS = [line.split("|")[1:-1] for line in PAGE.partition("| row | settings |")[2].splitlines()[2:] if line[:1] == "|"]


@cache
def names_in(path: Path) -> set[str]:
    """Functions, classes and variables of a module, and with a dot those of its classes."""
    return set(_names(ast.parse(path.read_text(encoding="utf-8")).body))


def _names(body: list[ast.stmt], prefix: str = ""):
    for node in body:
        match node:
            case ast.FunctionDef(name=name):
                yield prefix + name
            case ast.ClassDef(name=name, body=inner):
                yield prefix + name
                yield from _names(inner, f"{prefix}{name}.")
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                yield prefix + name


def test_the_page_points_to_code():
    assert len(NAMES) > 40
    assert PAGE.count("::") == len(re.findall(r"`[\w/]+\.py::[\w.]+`", PAGE))


@pytest.mark.parametrize(("path", "name"), [name for name in NAMES if name[0] != "file.py"])
def test_what_the_page_names_exists(path, name):
    assert name in names_in(ROOT / "src" / "heedful" / path)


def settings_in(text: str) -> list[str]:
    return re.findall(r"`([\w.]+=[^`]+)`", text)


def test_every_setting_of_the_page_is_one():
    for setting in settings_in(PAGE):
        config.load_config(None, [setting])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1].strip() or "base")
def test_the_table_of_sizes_is_right(row):
    """A row of several values for one setting has the same size at each."""
    name, settings, here, printed = (cell.strip() for cell in row)
    keys = [setting.partition("=")[0] for setting in settings_in(settings)]
    runs = [[s] for s in settings_in(settings)] if len(set(keys)) < len(keys) else [settings_in(settings)]
    for overrides in runs:
        run = config.load_config(None, overrides)
        model = run.with_preset(run.preset or "base").replace(model={"vocab_size": 41_000}).model
        with torch.device("meta"):
            millions = sum(parameter.numel() for parameter in build_model(model).parameters()) / 1e6
        assert f"{millions:.1f}" == here
        assert name == "big" or not printed or f"{millions:.0f}" == printed


def test_the_table_has_every_row_of_the_paper():
    assert [row[0].strip() for row in ROWS] == ["base", "A", "B", "", *["C", *[""] * 6], "D", "E", "big"]
