"""`heedful fill-mask`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.open_models import open_encoder
from heedful.cli.options import EncoderCompute


def fill_mask(
    model: Annotated[Path, typer.Argument(help="Folder of a BERT.")],
    text: Annotated[str, typer.Argument(help="Text with [MASK] or <mask> in place of the missing words.")],
    compute: EncoderCompute,
    top: Annotated[int, typer.Option(help="Number of candidates per mask.")] = 5,
) -> None:
    """Predict the masked words of a text. Prints the most probable candidates with their probabilities.

    For example: heedful fill-mask runs/bert "Paris is the [MASK] of France."
    """
    from heedful.text.normalization import replace_surrogates

    encoder = open_encoder(model, compute)
    for number, candidates in enumerate(encoder.fill_mask(replace_surrogates(text), top)):
        if number:
            print()
        for candidate in candidates:
            print(f"{candidate.probability:.4f}\t{candidate.token}\t{candidate.text}")
