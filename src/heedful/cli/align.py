"""`heedful align`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.streams import DASH, check_outputs, output_lines, set_threads


def align(
    model: Annotated[Path, typer.Argument(help="The folder of a translator.")],
    source: Annotated[Path, typer.Option(help="Source side, one sentence a line; plain or .gz.")],
    target: Annotated[Path, typer.Option(help="Target side, line by line.")],
    out: Annotated[Path, typer.Option(help="Where to write; - for standard output.")] = DASH,
    reverse: Annotated[
        Path | None, typer.Option(help="A translator of the other direction: both alignments become one.")
    ] = None,
    heads: Annotated[
        str | None, typer.Option(help="Heads to read, such as decoder.1.cross.0,decoder.1.cross.2; chosen if not set.")
    ] = None,
    marks: Annotated[bool, typer.Option("--marks", help="Count punctuation marks as words of their own.")] = False,
    threads: Annotated[int, typer.Option(min=0, help="CPU threads; 0 for all cores.")] = 0,
) -> None:
    """Align the words of given sentence pairs: source-target, counted from 0, one line a pair (Pharaoh form).

    For example: heedful align runs/x --source a.en --target a.de > a.align

    Read are the heads of cross-attention that agree best with what hiding a source word does to the target.
    """
    from heedful.errors import SettingError
    from heedful.formats.line_files import read_pairs
    from heedful.inference.alignment import HeadChoice
    from heedful.inference.results import pharaoh
    from heedful.inside import Head
    from heedful.inside.aligner import Aligner, align_both
    from heedful.inside.patch import heads as all_heads
    from heedful.interop import open_folder

    check_outputs(out)
    set_threads(threads)
    folder = open_folder(model)
    forward = Aligner(folder, marks=marks)
    if heads is not None:
        chosen = [Head.parse(name.strip()) for name in heads.split(",")]
        for head in chosen:
            if head not in all_heads(folder) or head.kind != "cross":
                raise SettingError(
                    f"{head} is no head of cross-attention in {model}; one looks like decoder.0.cross.0."
                )
        forward.choice = HeadChoice(tuple((head.layer, head.number) for head in chosen))
    forward.notice = lambda text: print(text, file=sys.stderr)
    pairs = read_pairs(source, target)
    found = forward.align(pairs)
    if reverse is not None:
        found = align_both(forward, Aligner(open_folder(reverse), marks=marks), pairs)
    with output_lines(out, source, target) as put:
        for links in found:
            put(pharaoh(links))
    if forward.choice is not None:
        print(f"read off {', '.join(forward.choice.names)}", file=sys.stderr)
