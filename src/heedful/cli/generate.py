"""`heedful generate`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.open_models import open_generator
from heedful.cli.options import EncoderCompute, SamplingGroup, drop_unset


@dataclass(frozen=True)
class GenerationGroup(SamplingGroup):
    """How tokens are sampled, and when to stop."""

    max_tokens: Annotated[int, typer.Option(help="Maximum number of tokens to generate.")] = 200
    min_p: Annotated[
        float | None, typer.Option(help="Sampling: only tokens at least p times as probable as the best one.")
    ] = None
    repetition_penalty: Annotated[float, typer.Option(help="Above 1 makes repeated tokens less probable.")] = 1.0
    stop: Annotated[list[str] | None, typer.Option(help="Stop before this text; repeatable.")] = None


def generate(
    model: Annotated[Path, typer.Argument(help="Folder of a GPT.")],
    generation: GenerationGroup,
    compute: EncoderCompute,
    prompt: Annotated[str, typer.Argument(help="Text to continue; - is standard input.")] = "",
    n: Annotated[int, typer.Option("--n", "-n", help="Number of samples.")] = 1,
) -> None:
    """Continue a text and print it token by token.

    For example: heedful generate runs/gpt "To be, or" --temperature 0.8
    """
    from heedful.errors import DataError, SettingError
    from heedful.text.normalization import replace_surrogates

    if n < 1:
        raise SettingError(f"--n is {n}; it must be 1 or more.")
    generator = open_generator(model, compute)
    if prompt == "-":
        try:
            prompt = sys.stdin.buffer.read().decode("utf-8")
        except UnicodeDecodeError as error:
            where = f"byte 0x{error.object[error.start]:02x} at position {error.start + 1}"
            raise DataError(f"standard input is not UTF-8 ({where}); give text in UTF-8.") from None
    prompt = replace_surrogates(prompt)
    for number in range(n):
        chunks = generator.stream(prompt, number, **drop_unset(generation))
        print(f"--- {number + 1} ---\n" if n > 1 else "", prompt, sep="", end="", flush=True)
        for chunk in chunks:
            print(chunk, end="", flush=True)
        print()
