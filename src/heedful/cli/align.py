"""`heedful align`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.open_models import print_notice, print_torch_notice, set_threads, warn_without_trees
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
    folders = [open_folder(path) for path in (model, reverse) if path is not None]
    warn_without_trees(folders[0])  # heads are chosen by masking words, and a sentence with a mask has no tree
    for folder in folders:
        print_torch_notice([folder])
    forward, *backward = (Aligner(folder, marks=marks) for folder in folders)
    if heads is not None:
        forward.choice = HeadChoice.parse([name.strip() for name in heads.split(",")], forward.model)
    forward.notice = print_notice
    pairs = read_pairs(source, target)
    alignments = forward.align(pairs)
    if backward:
        alignments = align_both(forward, backward[0], pairs)
    with output_lines(out, source, target) as put:
        for links in alignments:
            put(pharaoh(links))
    if forward.choice is not None:
        print_notice(f"aligned by the heads {', '.join(forward.choice.names)}")
