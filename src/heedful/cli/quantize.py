"""`heedful quantize`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def quantize(
    model: Annotated[Path, typer.Argument(help="A model folder; it is not changed.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder to create; by default the model's name with -int8 appended.")
    ] = None,
) -> None:
    """Quantize the weights of a model to int8. A quarter of the size, same translations as --precision int8.

    For example: heedful quantize runs/x --out runs/x-int8

    Every command accepts the result.
    """
    from dataclasses import replace

    from heedful.inference import shortlist
    from heedful.interop import open_folder
    from heedful.interop.model_card import card
    from heedful.storage import folder
    from heedful.storage.atomic import atomic_folder, check_output_path
    from heedful.storage.weight_file import WeightFile

    if out is None:
        named = model.resolve() if model.name in ("", "..") else model
        out = named.with_name(f"{named.name}-int8")
    check_output_path(out)
    opened = open_folder(model)
    stored = opened.weights.path.stat().st_size if isinstance(opened.weights, WeightFile) else None
    readme = card(opened, "heedful") + "\nThe weights are quantized to int8 (`heedful quantize`).\n"
    with atomic_folder(out.resolve()) as temporary:
        folder.save_folder(replace(opened, path=temporary), readme, precision="int8")
        folder.load_folder(temporary)  # verifies the new folder
        if (model / shortlist.SHORTLIST_FILE).exists():
            shortlist.save_shortlist(shortlist.load_shortlist(opened), replace(opened, path=temporary))
    before = stored or sum(tensor.nbytes for tensor in opened.model.state_dict().values())  # of another toolkit
    after = (out / folder.WEIGHTS).stat().st_size
    print(f"{out} holds the model in {after / 1e6:.1f} MB instead of {before / 1e6:.1f} MB.")
