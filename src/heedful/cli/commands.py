"""The typer application. Importing it stays cheap: a command imports torch only in its body."""

from collections.abc import Sequence
from importlib import import_module
from typing import Annotated

import typer

from heedful import __version__
from heedful.cli.option_groups import expand_groups

# In the order of `heedful --help`; each is the function of that name in the module of that name.
COMMANDS = (
    "train", "clean", "translate", "summarize", "transcribe", "generate", "fill_mask", "embed", "similar", "classify",
    "tag", "answer", "evaluate", "compare", "score", "serve", "explain", "align", "heads", "convert", "quantize",
    "shortlist", "settings", "info", "demo",
)  # fmt: skip


def build_app(words: Sequence[str] = ()) -> typer.Typer:
    """All commands, or the one that the first of these words names: importing and building all takes 40 ms longer."""
    app = typer.Typer(
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    )
    app.callback()(heedful)
    name = words[0].replace("-", "_") if words else ""
    for command in [name] if name in COMMANDS else COMMANDS:
        app.command()(expand_groups(getattr(import_module(f"heedful.cli.{command}"), command)))
    return app


def _print_version(requested: bool) -> None:
    if requested:
        print(f"heedful {__version__}")
        raise typer.Exit


def heedful(
    version: Annotated[bool, typer.Option("--version", help="Print the version.", callback=_print_version)] = False,
) -> None:
    """Train transformers on your own data, then use, evaluate, serve and inspect them."""
