"""`heedful fill-mask`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.streams import Device, prepare_torch


def fill_mask(
    model: Annotated[Path, typer.Argument(help="The folder of a BERT.")],
    text: Annotated[str, typer.Argument(help="Text with [MASK] or <mask> where a word is missing.")],
    top: Annotated[int, typer.Option(help="Candidates for each blank.")] = 5,
    threads: Annotated[int, typer.Option(help="CPU threads; 0 for all cores.")] = 0,
    precision: Annotated[str, typer.Option(help="auto, float32 or bfloat16.")] = "float32",
    device: Device = "cpu",
) -> None:
    """Fill in the blanks of a text: the most probable words, with their probabilities.

    For example: heedful fill-mask runs/bert "Paris is the [MASK] of France."
    """
    from heedful.inference.encoder import Encoder
    from heedful.interop import open_folder
    from heedful.text.normalization import valid

    encoder = Encoder(open_folder(model), prepare_torch(threads, precision, device), device)
    for number, candidates in enumerate(encoder.fill_mask(valid(text), top)):
        if number:
            print()
        for candidate in candidates:
            print(f"{candidate.probability:.4f}\t{candidate.token}\t{candidate.text}")
