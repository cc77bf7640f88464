"""`heedful evaluate`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.streams import Device, open_translator


def evaluate(
    models: Annotated[list[Path], typer.Argument(help="A model folder, or several as an ensemble.")],
    source: Annotated[Path, typer.Option(help="Text to translate, one sentence a line; plain or .gz.")],
    reference: Annotated[Path, typer.Option(help="Its translation, line by line.")],
    beam: Annotated[int | None, typer.Option(help="Hypotheses kept at each step; 1 is greedy.")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="α of GNMT's length penalty.")] = None,
    tokenize: Annotated[str | None, typer.Option(help="sacreBLEU's tokeniser: 13a, none, zh, …")] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Ignore case.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    shortlist: Annotated[
        bool,
        typer.Option(
            "--shortlist", help="Choose among likely tokens (heedful shortlist): pays with large vocabularies."
        ),
    ] = False,
    threads: Annotated[int, typer.Option(help="CPU threads; 0 for all cores.")] = 0,
    precision: Annotated[
        str, typer.Option(help="auto (the fastest that this machine has), float32, bfloat16 or int8.")
    ] = "auto",
    device: Device = "cpu",
) -> None:
    """Translate a test set and compare it with a reference: BLEU, chrF and TER by sacreBLEU, and exact match.

    For example: heedful evaluate runs/x --source test.en --reference test.de
    """
    from heedful.evaluation import metrics as measures
    from heedful.formats.line_files import read_pairs

    measures.bleu_of(tokenize, lowercase)  # what cannot be measured is not translated first
    pairs = list(read_pairs(source, reference))
    translator = open_translator(models, threads, precision, device, shortlist=shortlist)
    options = {
        name: value for name, value in {"beam": beam, "length_penalty": length_penalty}.items() if value is not None
    }
    began = time.perf_counter()
    translated = translator.translate([text for text, _ in pairs], **options)
    seconds = time.perf_counter() - began
    result = measures.evaluate(translated, [text for _, text in pairs], tokenize=tokenize, lowercase=lowercase)
    speed = len(pairs) / seconds
    if as_json:
        print(json.dumps(result.as_json() | {"sentences_per_second": speed, "engine": translator.engine}, indent=2))
        return
    print(f"BLEU  {result.bleu:6.2f}   {result.signatures['BLEU']}")
    print(f"chrF  {result.chrf:6.2f}   {result.signatures['chrF']}")
    print(f"TER   {result.ter:6.2f}   {result.signatures['TER']}")
    print(f"exact {result.exact:6.2f}   of {result.sentences:,} sentences, {speed:.1f} a second by {translator.engine}")
