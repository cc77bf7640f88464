"""`heedful explain`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer


def explain(
    model: Annotated[Path, typer.Argument(help="A model folder: a translator, a GPT or an encoder.")],
    text: Annotated[str, typer.Argument(help="The text to look at; an encoder's mask in it hides a word.")],
    out: Annotated[
        Path | None, typer.Option(help="The page, one HTML file; explain.html if nothing is asked for.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="Look at this output instead of the model's own.")] = None,
    beam: Annotated[int | None, typer.Option(help="Hypotheses kept at each step; 1 is greedy.")] = None,
    png: Annotated[Path | None, typer.Option(help="A picture of the attention for a paper.")] = None,
    svg: Annotated[Path | None, typer.Option(help="The same as SVG.")] = None,
    picture: Annotated[
        str | None,
        typer.Option(help="What the picture shows: decoder.cross (all heads), decoder.1.cross or decoder.1.cross.3."),
    ] = None,
    json: Annotated[Path | None, typer.Option(help="The raw numbers: tokens, every weight, scores, alignment.")] = None,
) -> None:
    """Write a page that shows what a model does with a text, and opens anywhere without a network.

    For example: heedful explain runs/x "The dog that the man saw sleeps." --out page.html
    """
    from heedful.cli.streams import check_outputs
    from heedful.inside import draw_attention
    from heedful.inside.explain import explain as look
    from heedful.interop import open_folder

    if out is None and not (png or svg or json):
        out = Path("explain.html")
    check_outputs(out, json, png, svg)
    search: dict[str, Any] = {} if beam is None else {"beam": beam}
    found = look(open_folder(model), text, target, **search)
    if found.run.note:
        print(found.run.note, file=sys.stderr)
    if out is not None:
        found.save(out)
    if json is not None:
        found.save_numbers(json)
    for path in (png, svg):
        if path is not None:
            draw_attention(found.run, path, picture)
    if found.run.output is not None:
        print(found.run.output)
    for path in (out, json, png, svg):
        if path is not None:
            print(f"wrote {path}", file=sys.stderr)
