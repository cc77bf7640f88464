"""`heedful align`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.open_models import set_threads, warn_without_trees
from heedful.cli.options import SourceFile, TargetFile, Threads
from heedful.cli.streams import DASH, check_outputs, output_lines


def align(
    model: Annotated[Path, typer.Argument(help="Folder of a translator.")],
    source: SourceFile,
    target: TargetFile,
    out: Annotated[Path, typer.Option(help="File to write; - is standard output.")] = DASH,
    reverse: Annotated[
        Path | None,
        typer.Option(help="Folder of a translator for the opposite direction: the two alignments are symmetrized."),
    ] = None,
    heads: Annotated[
        str | None,
        typer.Option(
            help="Cross-attention heads to use, such as decoder.1.cross.0,decoder.1.cross.2 (default: chosen)."
        ),
    ] = None,
    marks: Annotated[bool, typer.Option("--marks", help="Treat punctuation marks as separate words.")] = False,
    threads: Threads = 0,
) -> None:
    """Align the words of sentence pairs. One line per pair in Pharaoh format (source-target, counted from 0).

    For example: heedful align runs/x --source a.en --target a.de > a.align

    Without --heads, the cross-attention heads are used that agree best with the effect of masking each source word.
    """
    from heedful.formats.line_files import read_pairs
    from heedful.inference.aligner import Aligner, align_both
    from heedful.inference.alignment import HeadChoice
    from heedful.inference.results import pharaoh
    from heedful.interop import open_folder

    check_outputs(out)
    set_threads(threads)
    folder = open_folder(model)
    warn_without_trees(folder)  # heads are chosen by masking words, and a sentence with a mask has no tree
    forward = Aligner(folder, marks=marks)
    if heads is not None:
        forward.choice = HeadChoice.parse([name.strip() for name in heads.split(",")], forward.model)
    forward.notice = lambda text: print(text, file=sys.stderr)
    pairs = read_pairs(source, target)
    alignments = forward.align(pairs)
    if reverse is not None:
        alignments = align_both(forward, Aligner(open_folder(reverse), marks=marks), pairs)
    with output_lines(out, source, target) as put:
        for links in alignments:
            put(pharaoh(links))
    if forward.choice is not None:
        print(f"aligned by the heads {', '.join(forward.choice.names)}", file=sys.stderr)
