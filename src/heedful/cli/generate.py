"""`heedful generate`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from heedful.cli.streams import Device, prepare_torch


def generate(
    model: Annotated[Path, typer.Argument(help="The folder of a GPT.")],
    prompt: Annotated[str, typer.Argument(help="Text to go on from; - is standard input.")] = "",
    max_tokens: Annotated[int, typer.Option(help="Most tokens to write.")] = 200,
    temperature: Annotated[float | None, typer.Option(help="Below 1 is more careful; 0 is greedy.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Only the k most probable tokens.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Only the most probable share p.")] = None,
    min_p: Annotated[float | None, typer.Option(help="Only tokens this probable relative to the best.")] = None,
    repetition_penalty: Annotated[float, typer.Option(help="Above 1, what was written becomes less probable.")] = 1.0,
    stop: Annotated[list[str] | None, typer.Option(help="Text to stop before; may be given again.")] = None,
    n: Annotated[int, typer.Option("--n", "-n", help="Samples to write.")] = 1,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same text.")] = None,
    threads: Annotated[int, typer.Option(help="CPU threads; 0 for all cores.")] = 0,
    precision: Annotated[str, typer.Option(help="auto, float32 or bfloat16.")] = "float32",
    device: Device = "cpu",
) -> None:
    """Go on from a text, and show it while it is written.

    For example: heedful generate runs/gpt "To be, or" --temperature 0.8
    """
    from heedful.errors import SettingError
    from heedful.inference.generator import Generator
    from heedful.interop import open_folder
    from heedful.text.normalization import valid

    if n < 1:
        raise SettingError(f"--n is {n}; ask for one sample or more.")
    asked = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "seed": seed}
    options: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    options |= {"max_tokens": max_tokens, "repetition_penalty": repetition_penalty, "stop": stop or ()}
    generator = Generator(open_folder(model), prepare_torch(threads, precision, device), device)
    if prompt == "-":
        prompt = sys.stdin.buffer.read().decode("utf-8", "replace")
    prompt = valid(prompt)
    for number in range(n):
        pieces = generator.stream(prompt, number, **options)
        print(f"--- {number + 1} ---\n" if n > 1 else "", prompt, sep="", end="", flush=True)
        for piece in pieces:
            print(piece, end="", flush=True)
        print()
