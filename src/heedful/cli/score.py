"""`heedful score`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.open_models import open_translator, torch_precision, tree_summary
from heedful.cli.options import Compute, Models, Trees


@dataclass(frozen=True)
class ScoreCompute(Compute):
    """Where and how pairs are scored."""

    precision: Annotated[str, typer.Option(help="auto, float32 or bfloat16.")] = "float32"


def score(
    models: Models,
    compute: ScoreCompute,
    source: Annotated[Path | None, typer.Option(help="Source sentences, one per line; plain or .gz.")] = None,
    target: Annotated[Path | None, typer.Option(help="Their translations, one per line.")] = None,
    pairs: Annotated[Path | None, typer.Option(help="Both sides in one TSV file: source TAB target.")] = None,
    trees: Trees = None,
) -> None:
    """Print the log-probability of each target given its source. One number per line.

    For example: heedful score runs/x --source test.en --target test.de
    """
    from heedful.config import DataSettings
    from heedful.formats.pair_files import training_corpus

    corpus = training_corpus(DataSettings(source=source, target=target, pairs=(pairs,) if pairs else (), strict=True))
    translator = open_translator(models, replace(compute, precision=torch_precision(compute)), trees)
    sentence_pairs, first = corpus.pairs(), 1
    with tree_summary(*translator.source_trees):
        while chunk := list(islice(sentence_pairs, 2000)):
            for value in translator.score(chunk, first):
                print(f"{value:.4f}")
            first += len(chunk)
