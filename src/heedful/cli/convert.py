"""`heedful convert`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def convert(
    source: Annotated[
        Path,
        typer.Argument(
            help="A folder of heedful, Hugging Face (MarianMT, PEGASUS, GPT-2, BERT, Whisper), CTranslate2 or Marian; "
            "or a .pt."
        ),
    ],
    out: Annotated[Path, typer.Argument(help="Folder to create.")],
    to: Annotated[str, typer.Option(help="Format to write: heedful, huggingface, ctranslate2 or marian.")] = "heedful",
) -> None:
    """Convert from and to Hugging Face, CTranslate2 and Marian. Reads their models, or writes a model in their format.

    For example: heedful convert opus-mt-en-de runs/y; heedful convert runs/x out --to huggingface

    Both models are run and compared: a result with different outputs is refused, and so is a model that the other
    format cannot express.
    """
    from heedful.interop.conversion import convert as convert_folder

    agreement = convert_folder(source, out, to)
    tokens = "the same tokens, and " if agreement.decoded else ""
    print(
        f"{out} holds the same model: for {agreement.sequences} sequences, {agreement.other} gives {tokens}"
        f"outputs that differ by at most {agreement.difference:.1e}."
    )
