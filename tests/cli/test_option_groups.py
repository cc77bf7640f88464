"""A command with option groups is the same for Typer as one that lists the options itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from heedful.cli.option_groups import expand_groups

Width = Annotated[int, typer.Option("--width", "-w", help="Width.", min=1)]
Names = Annotated[list[str] | None, typer.Option(help="Names; repeatable.")]
Folder = Annotated[Path, typer.Argument(help="A folder.")]


@dataclass(frozen=True)
class Size:
    width: Width = 3
    fast: Annotated[bool, typer.Option(help="Be fast.")] = True


@dataclass(frozen=True)
class NamedSize(Size):
    names: Names = None


def grouped(folder: Folder, size: NamedSize, level: Annotated[float, typer.Option(help="Level.")] = 0.5) -> None:
    """Print all."""
    print(folder, level, size.width, size.fast, size.names)


def flat(
    folder: Folder,
    level: Annotated[float, typer.Option(help="Level.")] = 0.5,
    width: Width = 3,
    fast: Annotated[bool, typer.Option(help="Be fast.")] = True,
    names: Names = None,
) -> None:
    """Print all."""
    print(folder, level, width, fast, names)


def app(command: object) -> typer.Typer:
    application = typer.Typer(rich_markup_mode=None)
    application.command("run")(command)  # type: ignore[type-var]
    return application


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["x"],
        ["x", "-w", "5", "--no-fast", "--names", "a", "--names", "b", "--level", "2"],
        ["x", "--width", "0"],
        ["x", "--wide"],
        [],
    ],
    ids=" ".join,
)
def test_help_results_and_errors_are_those_of_single_options(words: list[str]) -> None:
    ours, expected = (
        CliRunner().invoke(app(command), words, prog_name="run") for command in (expand_groups(grouped), flat)
    )
    assert (ours.exit_code, ours.output) == (expected.exit_code, expected.output)
    assert "Traceback" not in ours.output


def test_completion_sees_every_option() -> None:
    ours, expected = (get_command(app(command)) for command in (expand_groups(grouped), flat))
    assert [(option.name, option.opts) for option in ours.params] == [
        (option.name, option.opts) for option in expected.params
    ]


def test_two_groups_with_the_same_option_are_refused() -> None:
    def twice(first: Size, second: Size) -> None: ...

    with pytest.raises(ValueError, match="duplicate parameter name"):
        expand_groups(twice)
