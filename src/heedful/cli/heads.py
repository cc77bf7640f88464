"""`heedful heads`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def heads(
    model: Annotated[Path, typer.Argument(help="A model folder: a translator, a GPT or an encoder.")],
    source: Annotated[Path, typer.Option(help="Text to measure on, one sentence a line; plain or .gz.")],
    reference: Annotated[Path | None, typer.Option(help="For a translator: its translation, line by line.")] = None,
    lines: Annotated[int, typer.Option(min=0, help="Lines to measure on, the first ones; 0 for all.")] = 200,
    bleu: Annotated[bool, typer.Option("--bleu", help="Translate too, and measure BLEU; slower.")] = False,
    png: Annotated[Path | None, typer.Option(help="A picture of the result.")] = None,
    svg: Annotated[Path | None, typer.Option(help="The same as SVG.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    threads: Annotated[int, typer.Option(min=0, help="CPU threads; 0 for all cores.")] = 0,
) -> None:
    """Switch off each attention head by itself, and measure how much worse the model becomes.

    For example: heedful heads runs/x --source test.en --reference test.de --png heads.png
    """
    from itertools import islice

    from rich.console import Console

    from heedful.cli.streams import check_outputs, input_lines, set_threads
    from heedful.formats.line_files import read_pairs
    from heedful.inside import draw_heads, importance
    from heedful.inside import heads as all_heads
    from heedful.interop import open_folder

    check_outputs(png, svg)
    set_threads(threads)
    folder, most = open_folder(model), lines or None
    references: list[str] | None = None
    if reference is None:
        sources = list(islice(input_lines(source), most))
    else:
        pairs = list(islice(read_pairs(source, reference), most))
        sources, references = [text for text, _ in pairs], [text for _, text in pairs]
    total = len(all_heads(folder))
    with Console(stderr=True).status(f"0 of {total} heads") as status:
        found = importance(
            folder, sources, references, bleu, lambda head, number: status.update(f"{number} of {total} heads")
        )
    for path in (png, svg):
        if path is not None:
            draw_heads(found, path)
    if as_json:
        print(json.dumps(found.as_json(), indent=2))
        return
    print(f"{'whole model':20} loss {found.whole.loss:7.4f}" + (f"   BLEU {found.whole.bleu:6.2f}" if bleu else ""))
    for head in found.ranked():
        drop = found.drop(head)
        print(f"{head!s:20} loss {found.rise(head):+7.4f}" + ("" if drop is None else f"   BLEU {-drop:+6.2f}"))
