"""`heedful compare`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.open_models import open_translator
from heedful.cli.options import AsJson, BeamSearchGroup, BleuTokenizer, TranslatorCompute, drop_unset


def compare(
    first: Annotated[Path, typer.Argument(help="A model folder.")],
    second: Annotated[Path, typer.Argument(help="The model folder to compare it with.")],
    source: Annotated[Path, typer.Option(help="Sentences to translate, one per line; plain or .gz.")],
    reference: Annotated[Path, typer.Option(help="Reference translations, one per line.")],
    search: BeamSearchGroup,
    compute: TranslatorCompute,
    examples: Annotated[int, typer.Option(min=0, help="Sentences to print whose translations differ most.")] = 5,
    samples: Annotated[int, typer.Option(min=10, max=100_000, help="Resamples of the paired bootstrap.")] = 1000,
    tokenize: BleuTokenizer = None,
    as_json: AsJson = False,
) -> None:
    """Compare two translators on a test set. BLEU and chrF by paired bootstrap, and where they differ most.

    For example: heedful compare runs/x runs/y --source test.en --reference test.de
    """
    from heedful.evaluation import comparison
    from heedful.formats.line_files import read_pairs

    pairs = list(read_pairs(source, reference))
    sources, references = [text for text, _ in pairs], [text for _, text in pairs]
    options = drop_unset(search)
    outputs = [open_translator([model], compute).translate(sources, **options) for model in (first, second)]
    both = (outputs[0], outputs[1])
    results = comparison.compare(both, references, tokenize, samples)
    differences = comparison.largest_differences(sources, both, references, examples)
    if as_json:
        print(json.dumps({"metrics": [*map(asdict, results)], "differences": [*map(asdict, differences)]}, indent=2))
        return
    width = max(24, 2 + max(len(str(first)), len(str(second))))
    print(f"{'':6}{first!s:>{width}}{second!s:>{width}}{'difference':>13}{'p':>9}")
    for result in results:
        cells = [f"{score:.2f} ± {ci:.2f}" for score, ci in zip(result.scores, result.intervals, strict=True)]
        print(
            f"{result.name:6}{cells[0]:>{width}}{cells[1]:>{width}}{result.scores[1] - result.scores[0]:>+13.2f}"
            f"{result.p_value:>9.4f}"
        )
    print(f"paired bootstrap, {samples:,} resamples of {len(pairs):,} sentences; p below 0.05: unlikely to be chance")
    for difference in differences:
        print(f"\nline {difference.number}, chrF {difference.scores[0]:.1f} and {difference.scores[1]:.1f}")
        for name, text in (("source", difference.source), ("reference", difference.reference)):
            print(f"  {name}: {text}")
        for model, text in zip((first, second), difference.outputs, strict=True):
            print(f"  {model}: {text}")
