"""Options that several commands share: annotated types, and groups of options (see option_groups)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from heedful.errors import SettingError

Models = Annotated[list[Path], typer.Argument(help="A model folder, or several as an ensemble.")]
OutputFile = Annotated[Path, typer.Option("--output", "-o", help="File to write; - is standard output.")]
SourceFile = Annotated[Path, typer.Option(help="Source sentences, one per line; plain or .gz.")]
TargetFile = Annotated[Path, typer.Option(help="Their translations, one per line.")]
Beam = Annotated[int | None, typer.Option(help="Beam size: hypotheses kept at each step; 1 is greedy search.")]
Threads = Annotated[int, typer.Option(help="CPU threads; 0 for all cores.")]
Precision = Annotated[str, typer.Option(help="auto (the fastest one of this machine), float32, bfloat16 or int8.")]
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
Trees = Annotated[
    list[Path] | None, typer.Option(help="CoNLL-U files with trees of the sentences, for syntax positions.")
]
BleuTokenizer = Annotated[
    str | None,
    typer.Option(help="sacreBLEU's tokenizer: 13a, none, zh, …; by default chosen by the script of the references."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@dataclass(frozen=True)
class Languages:
    """What to read from files of several languages."""

    source_language: Annotated[
        str | None, typer.Option(help="Source language in files of several languages, such as en.")
    ] = None
    target_language: Annotated[
        str | None, typer.Option(help="Target language in files of several languages, such as de.")
    ] = None


@dataclass(frozen=True)
class BeamSearchGroup:
    """How translations, summaries and transcripts are searched for."""

    beam: Beam = None
    length_penalty: Annotated[
        float | None, typer.Option(help="Length penalty α (GNMT): scores are divided by ((5 + length) / 6) ** α.")
    ] = None
    max_length: Annotated[int | None, typer.Option(help="Maximum number of tokens of an output.")] = None
    loop_guard: Annotated[
        bool | None,
        typer.Option(help="Search a line again if its output repeats itself in a row and its source does not."),
    ] = None


@dataclass(frozen=True)
class SamplingGroup:
    """How tokens are sampled."""

    temperature: Annotated[float | None, typer.Option(help="Sampling: below 1 is less random; 0 is greedy.")] = None
    top_k: Annotated[int | None, typer.Option(help="Sampling: only the k most probable tokens.")] = None
    top_p: Annotated[
        float | None, typer.Option(help="Sampling: only the most probable tokens that sum to p (nucleus sampling).")
    ] = None
    seed: Annotated[int | None, typer.Option(help="Sampling: the same seed gives the same text.")] = None


@dataclass(frozen=True)
class Compute:
    """Where and how a model computes."""

    threads: Threads = 0
    precision: Precision = "auto"
    device: Annotated[str, typer.Option(help="cpu, or cuda for a GPU.")] = "cpu"


@dataclass(frozen=True)
class TranslatorCompute(Compute):
    """The same for a translator, which translates several batches at a time."""

    workers: Annotated[
        int, typer.Option(help="Batches that are decoded in parallel; 0 for one per thread, which is fastest.")
    ] = 0
    shortlist: Shortlist = False


@dataclass(frozen=True)
class EncoderCompute(Compute):
    """The same for an encoder or a GPT."""

    precision: Annotated[str, typer.Option(help="float32, int8 (the native engine) or bfloat16 (PyTorch).")] = "float32"


def drop_unset(*groups: object, **options: Any) -> dict[str, Any]:
    """The options that were given; the settings of the model hold for the others."""
    for group in groups:
        options |= vars(group)
    return {name: value for name, value in options.items() if value is not None}


def refuse_unused(group: object, names: Iterable[str], why: str) -> None:
    """Refuse those options of a group, by their names as fields, that were given although they have no effect."""
    given = [name for name in names if getattr(group, name) != getattr(type(group), name)]  # its default
    if given:
        options = " and ".join(_option_name(group, name) for name in given)
        raise SettingError(f"{options} {'has' if len(given) == 1 else 'have'} no effect {why}.")


def _option_name(group: object, name: str) -> str:
    """How an option is typed."""
    hint = get_type_hints(type(group), include_extras=True)[name]
    return next(iter(hint.__metadata__[0].param_decls or ()), f"--{name.replace('_', '-')}")
