"""`heedful heads`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.open_models import set_threads, warn_without_trees
from heedful.cli.options import AsJson, Threads
from heedful.cli.streams import check_outputs, input_lines


def heads(
    model: Annotated[Path, typer.Argument(help="A model folder: a translator, a GPT or an encoder.")],
    source: Annotated[Path, typer.Option(help="Text to evaluate on, one sentence per line; plain or .gz.")],
    reference: Annotated[
        Path | None, typer.Option(help="For a translator: reference translations, one per line.")
    ] = None,
    lines: Annotated[int, typer.Option(min=0, help="Use the first lines only; 0 for all.")] = 200,
    bleu: Annotated[bool, typer.Option("--bleu", help="Also translate and measure BLEU; slower.")] = False,
    png: Annotated[Path | None, typer.Option(help="Write a figure of the result as PNG.")] = None,
    svg: Annotated[Path | None, typer.Option(help="Write the same figure as SVG.")] = None,
    as_json: AsJson = False,
    threads: Threads = 0,
) -> None:
    """Measure the importance of each attention head. Each is ablated, and the rise of the loss printed.

    For example: heedful heads runs/x --source test.en --reference test.de --png heads.png
    """
    from itertools import islice

    from rich.console import Console

    from heedful.formats.line_files import read_pairs
    from heedful.inside import draw_heads, importance
    from heedful.inside import heads as all_heads
    from heedful.interop import open_folder

    check_outputs(png, svg)
    set_threads(threads)
    folder, max_lines = open_folder(model), lines or None
    warn_without_trees(folder)
    references: list[str] | None = None
    if reference is None:
        sources = list(islice(input_lines(source), max_lines))
    else:
        pairs = list(islice(read_pairs(source, reference), max_lines))
        sources, references = [text for text, _ in pairs], [text for _, text in pairs]
    total = len(all_heads(folder))
    with Console(stderr=True).status(f"0 of {total} heads") as status:
        result = importance(
            folder, sources, references, bleu, lambda head, number: status.update(f"{number} of {total} heads")
        )
    for path in (png, svg):
        if path is not None:
            draw_heads(result, path)
    if as_json:
        print(json.dumps(result.as_json(), indent=2))
        return
    print(f"{'all heads':20} loss {result.whole.loss:7.4f}" + (f"   BLEU {result.whole.bleu:6.2f}" if bleu else ""))
    for head in result.ranked():
        drop = result.drop(head)
        print(f"{head!s:20} loss {result.rise(head):+7.4f}" + ("" if drop is None else f"   BLEU {-drop:+6.2f}"))
