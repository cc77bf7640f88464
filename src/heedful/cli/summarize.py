"""`heedful summarize`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.open_models import open_translator
from heedful.cli.options import BeamSearchGroup, Compute, Models, OutputFile, drop_unset
from heedful.cli.streams import DASH, check_outputs
from heedful.cli.translate import translate_lines


@dataclass(frozen=True)
class SummaryGroup(BeamSearchGroup):
    """The search, and what holds for summaries only."""

    min_length: Annotated[int | None, typer.Option(help="Minimum number of tokens of a summary.")] = None
    no_repeat_ngram: Annotated[
        int | None, typer.Option(help="No n-gram of this length occurs twice in a summary; 0 allows all.")
    ] = None


def summarize(
    models: Models,
    search: SummaryGroup,
    compute: Compute,
    input: Annotated[Path, typer.Option("--input", "-i", help="Documents, one per line; - is standard input.")] = DASH,
    output: OutputFile = DASH,
) -> None:
    """Summarize documents, one per line. N lines in, N lines out, in order; an empty line stays empty.

    For example: heedful summarize runs/s < articles.txt > summaries.txt

    A document longer than the model reads is truncated at its end, and stderr names the line.
    """
    from heedful.inference.summarizer import Summarizer
    from heedful.storage.folder import wrong_family_error

    check_outputs(output)
    summarizer = open_translator(models, compute)
    if not isinstance(summarizer, Summarizer):
        raise wrong_family_error(summarizer.folders[0], "was not trained to summarize")
    options = drop_unset(search)
    translate_lines(summarizer, input, output, options, lambda number, summary: summary.text, warnings=False)
