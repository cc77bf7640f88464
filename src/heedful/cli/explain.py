"""`heedful explain`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.open_models import read_trees, tree_summary
from heedful.cli.options import Beam, Trees, drop_unset
from heedful.cli.streams import check_outputs


def explain(
    model: Annotated[Path, typer.Argument(help="A translator, summarizer, GPT, encoder or speech recognizer.")],
    text: Annotated[
        str,
        typer.Argument(
            help="Input text, or the path of a recording; for an encoder it may contain [MASK], or a TAB before"
            " a second text."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="HTML file to write; explain.html if no other output is requested.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="Explain this output instead of the model's own.")] = None,
    beam: Beam = None,
    trees: Trees = None,
    png: Annotated[Path | None, typer.Option(help="Write a figure of the attention weights as PNG.")] = None,
    svg: Annotated[Path | None, typer.Option(help="Write the same figure as SVG.")] = None,
    picture: Annotated[
        str | None,
        typer.Option(help="What the figure shows: decoder.cross (all heads), decoder.1.cross or decoder.1.cross.3."),
    ] = None,
    json: Annotated[
        Path | None, typer.Option(help="Write tokens, attention weights, scores and alignment as JSON.")
    ] = None,
) -> None:
    """Write an HTML page that shows how a model processes a text. It is one file and works offline.

    For example: heedful explain runs/x "The dog that the man saw sleeps." --out page.html
    """
    from heedful.inside import draw_attention
    from heedful.inside.explain import explain as explain_text
    from heedful.inside.hops import hop_table
    from heedful.interop import open_folder

    if out is None and not (png or svg or json):
        out = Path("explain.html")
    check_outputs(out, json, png, svg)
    folder = open_folder(model)
    with tree_summary(*read_trees(folder, trees)):
        explanation = explain_text(folder, text, target, **drop_unset(beam=beam))
    run = explanation.run
    if run.note:
        print(run.note, file=sys.stderr)
    if out is not None:
        explanation.save(out)
    if json is not None:
        explanation.save_numbers(json)
    for path in (png, svg):
        if path is not None:
            draw_attention(run, path, picture)
    if run.output is not None:
        print(run.output)
    for line in hop_table(run):
        print(line)
    for path in (out, json, png, svg):
        if path is not None:
            print(f"wrote {path}", file=sys.stderr)
