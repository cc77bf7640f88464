"""`heedful generate`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.open_models import check_device, set_threads
from heedful.cli.options import Device, ModelPrecision, Threads, drop_unset


def generate(
    model: Annotated[Path, typer.Argument(help="Folder of a GPT.")],
    prompt: Annotated[str, typer.Argument(help="Text to continue; - is standard input.")] = "",
    max_tokens: Annotated[int, typer.Option(help="Maximum number of tokens to generate.")] = 200,
    temperature: Annotated[float | None, typer.Option(help="Below 1 is less random; 0 is greedy.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Sample from the k most probable tokens.")] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Sample from the most probable tokens that sum to p (nucleus sampling).")
    ] = None,
    min_p: Annotated[
        float | None, typer.Option(help="Sample from tokens at least p times as probable as the best one.")
    ] = None,
    repetition_penalty: Annotated[float, typer.Option(help="Above 1 makes repeated tokens less probable.")] = 1.0,
    stop: Annotated[list[str] | None, typer.Option(help="Stop before this text; repeatable.")] = None,
    n: Annotated[int, typer.Option("--n", "-n", help="Number of samples.")] = 1,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same text.")] = None,
    threads: Threads = 0,
    precision: ModelPrecision = "float32",
    device: Device = "cpu",
) -> None:
    """Continue a text and print it token by token.

    For example: heedful generate runs/gpt "To be, or" --temperature 0.8
    """
    from heedful.errors import SettingError
    from heedful.inference.generator import Generator
    from heedful.interop import open_folder
    from heedful.text.normalization import replace_surrogates

    if n < 1:
        raise SettingError(f"--n is {n}; it must be 1 or more.")
    options = drop_unset(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed)
    options |= {"max_tokens": max_tokens, "repetition_penalty": repetition_penalty, "stop": stop or ()}
    set_threads(threads)
    check_device(device)
    generator = Generator(open_folder(model), precision, device)
    if prompt == "-":
        prompt = sys.stdin.buffer.read().decode("utf-8", "replace")
    prompt = replace_surrogates(prompt)
    for number in range(n):
        chunks = generator.stream(prompt, number, **options)
        print(f"--- {number + 1} ---\n" if n > 1 else "", prompt, sep="", end="", flush=True)
        for chunk in chunks:
            print(chunk, end="", flush=True)
        print()
