"""`heedful translate`."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.cli.streams import DASH, Device, arriving_lines, check_outputs, open_translator, output_lines, progress

if TYPE_CHECKING:
    from heedful.inference.translator import Translation


def translate(
    models: Annotated[list[Path], typer.Argument(help="A model folder, or several as an ensemble.")],
    input: Annotated[Path, typer.Option("--input", "-i", help="Text to translate; - is standard input.")] = DASH,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to; - is standard output.")] = DASH,
    beam: Annotated[int | None, typer.Option(help="Hypotheses kept at each step; 1 is greedy.")] = None,
    length_penalty: Annotated[
        float | None, typer.Option(help="α of GNMT: scores are divided by ((5 + length) / 6) ** α.")
    ] = None,
    max_length: Annotated[int | None, typer.Option(help="Most tokens of a translation.")] = None,
    n_best: Annotated[
        int, typer.Option(help="Translations of each line, as `line ||| text ||| log-probability ||| score`.")
    ] = 1,
    scores: Annotated[bool, typer.Option("--scores", help="Put the score and a TAB before each translation.")] = False,
    alignments: Annotated[
        bool, typer.Option("--alignments", help="Put a TAB and word alignments (0-0 1-2) behind each translation.")
    ] = False,
    sampling: Annotated[bool, typer.Option("--sample", help="Draw at random instead of searching the best.")] = False,
    temperature: Annotated[float | None, typer.Option(help="With --sample: below 1 is more careful.")] = None,
    top_k: Annotated[int | None, typer.Option(help="With --sample: only the k most probable tokens.")] = None,
    top_p: Annotated[float | None, typer.Option(help="With --sample: only the most probable share p.")] = None,
    seed: Annotated[int | None, typer.Option(help="With --sample: the same seed gives the same text.")] = None,
    prefix: Annotated[str, typer.Option(help="Text that every translation has to begin with.")] = "",
    shortlist: Annotated[
        bool,
        typer.Option(
            "--shortlist", help="Choose among likely tokens (heedful shortlist): pays with large vocabularies."
        ),
    ] = False,
    threads: Annotated[int, typer.Option(help="CPU threads; 0 for all cores.")] = 0,
    workers: Annotated[
        int, typer.Option(help="Sentences of how many searches at a time; 0 for one on each thread, which is fastest.")
    ] = 0,
    precision: Annotated[
        str, typer.Option(help="auto (the fastest that this machine has), float32, bfloat16 or int8.")
    ] = "auto",
    device: Device = "cpu",
) -> None:
    """Translate text, line by line: N lines in, N lines out, in order; an empty line stays empty.

    For example: heedful translate runs/x < in.en > out.de
    """
    check_outputs(output)
    asked = {
        "beam": beam,
        "length_penalty": length_penalty,
        "max_length": max_length,
        "temperature": temperature,
        "top_k": top_k,
    }
    asked |= {"top_p": top_p, "seed": seed}
    options: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    options |= {"n_best": n_best, "sampling": sampling, "alignments": alignments, "prefix": prefix}
    translator = open_translator(models, threads, precision, device, workers, shortlist)
    lines, ready = arriving_lines(input)
    with (
        output_lines(output, input) as put,
        progress(input, output, translator.engine) as done,
        closing(translator.stream(lines, ready=ready, **options)) as found,
    ):
        for number, translations in enumerate(found):
            for translation in translations:
                put(n_best_line(number, translation) if n_best > 1 else line(translation, scores))
            done()


def line(translation: Translation, score: bool) -> str:
    """Score, text and alignment, as far as they are wanted, between TABs."""
    from heedful.inference.results import pharaoh

    fields = [f"{translation.score:.4f}"] if score else []
    fields.append(translation.text)
    if translation.alignment is not None:
        fields.append(pharaoh(translation.alignment))
    return "\t".join(fields)


def n_best_line(number: int, translation: Translation) -> str:
    """One line of an n-best list, as other tools read it."""
    from heedful.inference.results import pharaoh

    fields = [str(number), translation.text, f"{translation.log_prob:.4f}", f"{translation.score:.4f}"]
    if translation.alignment is not None:
        fields.append(pharaoh(translation.alignment))
    return " ||| ".join(fields)
