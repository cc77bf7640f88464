"""Options that several commands share, as annotated types."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

Models = Annotated[list[Path], typer.Argument(help="A model folder, or several as an ensemble.")]
OutputFile = Annotated[Path, typer.Option("--output", "-o", help="File to write; - is standard output.")]
SourceFile = Annotated[Path, typer.Option(help="Source sentences, one per line; plain or .gz.")]
TargetFile = Annotated[Path, typer.Option(help="Their translations, one per line.")]
SourceLanguage = Annotated[str | None, typer.Option(help="Source language in files of several languages, such as en.")]
TargetLanguage = Annotated[str | None, typer.Option(help="Target language in files of several languages, such as de.")]
Beam = Annotated[int | None, typer.Option(help="Beam size: hypotheses kept at each step; 1 is greedy search.")]
LoopGuard = Annotated[
    bool | None,
    typer.Option(help="Search a line again if its output repeats itself in a row and its source does not."),
]
Threads = Annotated[int, typer.Option(help="CPU threads; 0 for all cores.")]
Precision = Annotated[str, typer.Option(help="auto (the fastest one of this machine), float32, bfloat16 or int8.")]
ModelPrecision = Annotated[str, typer.Option(help="float32, int8 (the native engine) or bfloat16 (PyTorch).")]
TorchPrecision = Annotated[str, typer.Option(help="auto, float32 or bfloat16.")]
Device = Annotated[str, typer.Option(help="cpu, or cuda for a GPU.")]
Shortlist = Annotated[
    bool,
    typer.Option(
        "--shortlist",
        help="Restrict the output layer to the model's shortlist (see `heedful shortlist`): "
        "faster with large vocabularies.",
    ),
]
Glossary = Annotated[
    Path | None,
    typer.Option(help="Terms and their translations: CSV, tab-separated (source, target, forms by |) or TBX."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def drop_unset(**options: Any) -> dict[str, Any]:
    """The options that were given; the settings of the model hold for the others."""
    return {name: value for name, value in options.items() if value is not None}
