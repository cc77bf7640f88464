"""`heedful clean`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.options import Languages
from heedful.cli.streams import DASH, check_outputs, output_lines


def clean(
    files: Annotated[list[Path], typer.Argument(help="Files or folders of pairs, as for `heedful train --pairs`.")],
    languages: Languages,
    out: Annotated[Path, typer.Option(help="TSV file to write, source TAB target; - is standard output.")] = DASH,
    without: Annotated[list[str] | None, typer.Option(help="A filter to leave out; may be given again.")] = None,
    min_words: Annotated[int, typer.Option(help="length: fewest words of a side.")] = 1,
    max_words: Annotated[int, typer.Option(help="length: most words of a side.")] = 200,
    max_ratio: Annotated[float, typer.Option(help="ratio: largest ratio of both lengths in characters.")] = 3.0,
    script_share: Annotated[
        float, typer.Option(help="script: largest share of letters in a script that the side does not use.")
    ] = 0.5,
    language_margin: Annotated[
        float, typer.Option(help="language: by how much a trigram may be likelier in the other language (nats).")
    ] = 0.3,
    min_alignment: Annotated[
        float,
        typer.Option(help="alignment: smallest probability that both sides belong together.", min=0, max=1),
    ] = 0.5,
) -> None:
    """Drop bad pairs of a parallel corpus. A table shows what each filter dropped, with examples.

    The filters: empty, length, ratio, copy, placeholders, numbers, script, duplicate, near-duplicate, language,
    alignment. The last two and script learn from the corpus itself.

    For example: heedful clean memory.tmx exports/ --source-language en --target-language de --out clean.tsv
    """
    from heedful.config import DataSettings, validate_section
    from heedful.data.cleaning import CleaningReport, check_names, clean_pairs
    from heedful.data.pair_filters import FilterThresholds
    from heedful.formats.pair_files import training_corpus

    check_outputs(out)
    check_names(without or [])
    corpus = training_corpus(validate_section(DataSettings, {"pairs": files, **vars(languages)}))
    limits = FilterThresholds(min_words, max_words, max_ratio, language_margin, script_share, min_alignment)
    report = CleaningReport()
    with output_lines(out, *corpus.files) as put:
        for source, target in clean_pairs(corpus, limits, without or [], report):
            put(f"{source}\t{target}")
        for line in report.lines() if report.readable else ():
            print(line, file=sys.stderr)
        report.check(corpus)
