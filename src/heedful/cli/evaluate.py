"""`heedful evaluate`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.streams import Beam, Device, Precision, Shortlist, Threads, open_translator


def evaluate(
    models: Annotated[list[Path], typer.Argument(help="A model folder, or several as an ensemble.")],
    source: Annotated[Path, typer.Option(help="Sentences to translate, one per line; plain or .gz.")],
    reference: Annotated[Path, typer.Option(help="Reference translations, one per line.")],
    beam: Beam = None,
    length_penalty: Annotated[float | None, typer.Option(help="Length penalty α (GNMT).")] = None,
    tokenize: Annotated[str | None, typer.Option(help="sacreBLEU's tokenizer: 13a, none, zh, …")] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Ignore case.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    shortlist: Shortlist = False,
    threads: Threads = 0,
    precision: Precision = "auto",
    device: Device = "cpu",
) -> None:
    """Translate a test set and score it against the references: sacreBLEU's BLEU, chrF and TER, and exact match.

    For example: heedful evaluate runs/x --source test.en --reference test.de
    """
    from heedful.evaluation import metrics as measures
    from heedful.formats.line_files import read_pairs

    measures.build_bleu(tokenize, lowercase)  # checks the metric's options before translating
    pairs = list(read_pairs(source, reference))
    translator = open_translator(models, threads, precision, device, shortlist=shortlist)
    options = {
        name: value for name, value in {"beam": beam, "length_penalty": length_penalty}.items() if value is not None
    }
    start = time.perf_counter()
    hypotheses = translator.translate([text for text, _ in pairs], **options)
    seconds = time.perf_counter() - start
    result = measures.evaluate(hypotheses, [text for _, text in pairs], tokenize=tokenize, lowercase=lowercase)
    speed = len(pairs) / seconds
    if as_json:
        print(json.dumps(result.as_json() | {"sentences_per_second": speed, "engine": translator.engine}, indent=2))
        return
    print(f"BLEU  {result.bleu:6.2f}   {result.signatures['BLEU']}")
    print(f"chrF  {result.chrf:6.2f}   {result.signatures['chrF']}")
    print(f"TER   {result.ter:6.2f}   {result.signatures['TER']}")
    print(f"exact {result.exact:6.2f}   of {result.sentences:,} sentences, {speed:.1f}/s with {translator.engine}")
