"""The typer application with all commands. Importing it stays cheap: a command imports torch only in its body."""

from typing import Annotated

import typer

from heedful import __version__
from heedful.cli.align import align
from heedful.cli.answer import answer
from heedful.cli.classify import classify
from heedful.cli.clean import clean
from heedful.cli.compare import compare
from heedful.cli.convert import convert
from heedful.cli.demo import demo
from heedful.cli.embed import embed
from heedful.cli.evaluate import evaluate
from heedful.cli.explain import explain
from heedful.cli.fill_mask import fill_mask
from heedful.cli.generate import generate
from heedful.cli.heads import heads
from heedful.cli.info import info
from heedful.cli.quantize import quantize
from heedful.cli.score import score
from heedful.cli.serve import serve
from heedful.cli.settings import settings
from heedful.cli.shortlist import shortlist
from heedful.cli.similar import similar
from heedful.cli.summarize import summarize
from heedful.cli.tag import tag
from heedful.cli.train import train
from heedful.cli.transcribe import transcribe
from heedful.cli.translate import translate

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def _print_version(requested: bool) -> None:
    if requested:
        print(f"heedful {__version__}")
        raise typer.Exit


@app.callback()
def heedful(
    version: Annotated[bool, typer.Option("--version", help="Print the version.", callback=_print_version)] = False,
) -> None:
    """Train transformers on your own data, then use, evaluate, serve and inspect them."""


for command in (
    train,
    clean,
    translate,
    summarize,
    transcribe,
    generate,
    fill_mask,
    embed,
    similar,
    classify,
    tag,
    answer,
    evaluate,
    compare,
    score,
    serve,
    explain,
    align,
    heads,
    convert,
    quantize,
    shortlist,
    settings,
    info,
    demo,
):
    app.command()(command)
