"""`heedful quantize`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def quantize(
    model: Annotated[Path, typer.Argument(help="A model folder; it stays as it is.")],
    out: Annotated[
        Path | None, typer.Option(help="A new folder for the result; the model's name and -int8 if not given.")
    ] = None,
) -> None:
    """Write a model with weights of 8 bits: a quarter of the size, and the translations of --precision int8.

    For example: heedful quantize runs/x --out runs/x-int8

    Every command opens the result.
    """
    from dataclasses import replace

    from heedful.inference import shortlist
    from heedful.interop import open_folder
    from heedful.interop.model_card import card
    from heedful.storage import folder
    from heedful.storage.atomic import atomic_folder, check_output_path

    if out is None:
        named = model.resolve() if model.name in ("", "..") else model
        out = named.with_name(f"{named.name}-int8")
    check_output_path(out)
    opened = open_folder(model)
    words = card(opened, "heedful") + "\nThe weights are of 8 bits (`heedful quantize`).\n"
    with atomic_folder(out.resolve()) as temporary:
        folder.save_folder(replace(opened, path=temporary), words, precision="int8")
        folder.load_folder(temporary)  # what is there opens
        if (model / shortlist.FILE).exists():
            shortlist.save_shortlist(shortlist.load_shortlist(opened), replace(opened, path=temporary))
    before = sum(each.nbytes for each in opened.model.state_dict().values())
    after = (out / folder.WEIGHTS).stat().st_size
    print(f"{out} holds the model in {after / 1e6:.1f} MB instead of {before / 1e6:.1f}.")
