"""`heedful convert`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def convert(
    source: Annotated[Path, typer.Argument(help="A model folder: one of ours, or MarianMT, PEGASUS, GPT-2 or BERT.")],
    out: Annotated[Path, typer.Argument(help="A new folder for the result.")],
    to: Annotated[str, typer.Option(help="heedful, huggingface or ctranslate2.")] = "heedful",
) -> None:
    """Open somebody's model as one of ours, or write one of ours for transformers or CTranslate2.

    For example: heedful convert opus-mt-en-de runs/y; heedful convert runs/x out --to huggingface

    A model that the other side cannot express is refused, and so is a result that computes anything else.
    """
    from heedful.interop.conversion import convert as convert_folder

    agreement = convert_folder(source, out, to)
    tokens = "the same tokens, and " if agreement.decoded else ""
    print(
        f"{out} holds the same model: {agreement.sequences} sequences through {agreement.other} gave {tokens}"
        f"numbers at most {agreement.difference:.1e} apart."
    )
