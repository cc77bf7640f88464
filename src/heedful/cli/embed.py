"""`heedful embed`."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.streams import DASH, Device, check_outputs, input_lines, prepare_torch


def embed(
    model: Annotated[Path, typer.Argument(help="The folder of a BERT.")],
    input: Annotated[Path, typer.Option("--input", "-i", help="Texts, one a line; - is standard input.")] = DASH,
    output: Annotated[Path, typer.Option("--output", "-o", help="A .npy file; - is standard output.")] = DASH,
    pooling: Annotated[str, typer.Option(help="mean of all tokens, or the first one.")] = "mean",
    normalise: Annotated[bool, typer.Option(help="Scale every vector to length 1.")] = True,
    threads: Annotated[int, typer.Option(help="CPU threads; 0 for all cores.")] = 0,
    precision: Annotated[str, typer.Option(help="auto, float32 or bfloat16.")] = "float32",
    device: Device = "cpu",
) -> None:
    """Turn lines into vectors: N lines in, an array of N rows out.

    For example: heedful embed runs/bert < lines > vectors.npy
    """
    import numpy as np

    from heedful.errors import SettingError
    from heedful.inference.encoder import Encoder
    from heedful.interop import open_folder
    from heedful.storage.atomic import atomic_write

    if output == DASH and sys.stdout.isatty():
        raise SettingError("vectors are not for a screen; write them to a file with > vectors.npy or -o vectors.npy.")
    check_outputs(output)
    encoder = Encoder(open_folder(model), prepare_torch(threads, precision, device), device)
    encoder.notice = lambda text: print(text, file=sys.stderr)
    vectors = encoder.embed(list(input_lines(input)), pooling, normalise)
    data = io.BytesIO()
    np.save(data, vectors)
    if output == DASH:
        sys.stdout.buffer.write(data.getvalue())
    else:
        atomic_write(output, data.getvalue())
