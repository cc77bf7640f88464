"""`heedful summarize`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.open_models import open_translator
from heedful.cli.options import Beam, Device, LoopGuard, Models, OutputFile, Precision, Threads, drop_unset
from heedful.cli.streams import DASH, check_outputs
from heedful.cli.translate import translate_lines


def summarize(
    models: Models,
    input: Annotated[Path, typer.Option("--input", "-i", help="Documents, one per line; - is standard input.")] = DASH,
    output: OutputFile = DASH,
    beam: Beam = None,
    length_penalty: Annotated[float | None, typer.Option(help="Length penalty α (GNMT); more for longer ones.")] = None,
    min_length: Annotated[int | None, typer.Option(help="Minimum number of tokens of a summary.")] = None,
    max_length: Annotated[int | None, typer.Option(help="Maximum number of tokens of a summary.")] = None,
    no_repeat_ngram: Annotated[
        int | None, typer.Option(help="No n-gram of this length occurs twice in a summary; 0 allows all.")
    ] = None,
    loop_guard: LoopGuard = None,
    threads: Threads = 0,
    precision: Precision = "auto",
    device: Device = "cpu",
) -> None:
    """Summarize documents, one per line. N lines in, N lines out, in order; an empty line stays empty.

    For example: heedful summarize runs/s < articles.txt > summaries.txt

    A document longer than the model reads is truncated at its end, and stderr names the line.
    """
    from heedful.inference.summarizer import Summarizer
    from heedful.storage.folder import wrong_family_error

    check_outputs(output)
    options = drop_unset(beam=beam, length_penalty=length_penalty, min_length=min_length, max_length=max_length,
                         no_repeat_ngram=no_repeat_ngram, loop_guard=loop_guard)  # fmt: skip
    summarizer = open_translator(models, threads, precision, device)
    if not isinstance(summarizer, Summarizer):
        raise wrong_family_error(summarizer.folders[0], "was not trained to summarize")
    translate_lines(summarizer, input, output, options, lambda number, summary: summary.text, warnings=False)
