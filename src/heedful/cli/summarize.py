"""`heedful summarize`."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from heedful.cli.streams import (
    DASH,
    Beam,
    Device,
    LoopGuard,
    Precision,
    Threads,
    arriving_lines,
    check_outputs,
    open_translator,
    output_lines,
    progress,
)


def summarize(
    models: Annotated[list[Path], typer.Argument(help="A model folder, or several as an ensemble.")],
    input: Annotated[Path, typer.Option("--input", "-i", help="Documents, one per line; - is standard input.")] = DASH,
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write; - is standard output.")] = DASH,
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
    """Summarize documents, one per line: N lines in, N lines out, in order; an empty line stays empty.

    For example: heedful summarize runs/s < articles.txt > summaries.txt

    A document longer than the model reads is truncated at its end, and stderr names the line.
    """
    from heedful.inference.summarizer import Summarizer
    from heedful.storage.folder import wrong_family_error

    check_outputs(output)
    options: dict[str, Any] = {"beam": beam, "length_penalty": length_penalty, "min_length": min_length}
    options |= {"max_length": max_length, "no_repeat_ngram": no_repeat_ngram, "loop_guard": loop_guard}
    options = {name: value for name, value in options.items() if value is not None}
    summarizer = open_translator(models, threads, precision, device)
    if not isinstance(summarizer, Summarizer):
        raise wrong_family_error(summarizer.folders[0], "was not trained to summarize")
    lines, ready = arriving_lines(input)
    with (
        output_lines(output, input) as put,
        progress(input, output, summarizer.engine) as done,
        closing(summarizer.stream(lines, ready=ready, **options)) as results,
    ):
        for summaries in results:
            put(summaries[0].text)
            done()
