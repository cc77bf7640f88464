"""`heedful embed`."""

from __future__ import annotations

import io
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.classify import print_correlations
from heedful.cli.open_models import open_encoder
from heedful.cli.options import EncoderCompute
from heedful.cli.streams import DASH, check_outputs, input_lines

if TYPE_CHECKING:
    from heedful.inference.encoder import Encoder


def embed(
    model: Annotated[Path, typer.Argument(help="Folder of a BERT.")],
    compute: EncoderCompute,
    input: Annotated[Path, typer.Option("--input", "-i", help="Texts, one per line; - is standard input.")] = DASH,
    output: Annotated[Path, typer.Option("--output", "-o", help="A .npy file; - is standard output.")] = DASH,
    pooling: Annotated[str, typer.Option(help="mean (of all tokens) or first (token).")] = "mean",
    normalize: Annotated[bool, typer.Option(help="Scale every vector to length 1.")] = True,
    labeled: Annotated[
        Path | None, typer.Option(help="Compare with given similarities instead: number TAB text TAB second text.")
    ] = None,
) -> None:
    """Embed lines as vectors. N lines in, a NumPy array of N rows out.

    For example: heedful embed runs/bert < lines > vectors.npy

    With -o vectors.npy, vectors.npy.json notes the model and the lines for `heedful similar`.

    With --labeled test.tsv, print the correlations of the cosine similarities of pairs with given numbers.
    """
    import numpy as np

    from heedful.errors import SettingError
    from heedful.inference.vector_file import VectorTable, write_vectors

    if labeled is not None:
        print_similarity(open_encoder(model, compute), labeled, pooling)
        return
    if output == DASH and sys.stdout.isatty():
        raise SettingError("the output is a binary .npy file; redirect it with > vectors.npy, or set -o vectors.npy.")
    check_outputs(output)
    encoder = open_encoder(model, compute)
    vectors = encoder.embed(list(input_lines(input)), pooling, normalize)
    if output == DASH:
        data = io.BytesIO()
        np.save(data, vectors)
        sys.stdout.buffer.write(data.getvalue())
    else:
        write_vectors(output, VectorTable(vectors, model, pooling, None if input == DASH else input))


def print_similarity(encoder: Encoder, path: Path, pooling: str) -> None:
    """Print the correlations of cosine similarities with given numbers."""
    from heedful.data.labeled_corpus import read_labeled
    from heedful.errors import DataError

    examples = read_labeled(path, numbers=True)
    for number, example in enumerate(examples, 1):
        if not example.second:
            raise DataError(f"example {number} of {path} has no second text; each line is number TAB text TAB text.")
    print_correlations(examples, partial(encoder.similarity, pooling=pooling))
