"""`heedful score`."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.streams import Device, open_translator, prepare_torch


def score(
    models: Annotated[list[Path], typer.Argument(help="A model folder, or several as an ensemble.")],
    source: Annotated[Path | None, typer.Option(help="Source side, one sentence a line; plain or .gz.")] = None,
    target: Annotated[Path | None, typer.Option(help="Target side, line by line.")] = None,
    pairs: Annotated[Path | None, typer.Option(help="Both sides as one TSV file.")] = None,
    threads: Annotated[int, typer.Option(help="CPU threads; 0 for all cores.")] = 0,
    precision: Annotated[str, typer.Option(help="auto, float32 or bfloat16.")] = "float32",
    device: Device = "cpu",
) -> None:
    """Print the log-probability of each target given its source, one number a line.

    For example: heedful score runs/x --source test.en --target test.de
    """
    from heedful.config import DataSettings
    from heedful.formats.line_files import training_corpus

    corpus = training_corpus(DataSettings(source=source, target=target, pairs=pairs, strict=True))
    translator = open_translator(models, threads, prepare_torch(threads, precision, device), device)
    given, first = corpus.pairs(), 1
    while chunk := list(islice(given, 2000)):
        for value in translator.score(chunk, first):
            print(f"{value:.4f}")
        first += len(chunk)
