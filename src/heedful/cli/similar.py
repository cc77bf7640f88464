"""`heedful similar`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.open_models import open_encoder, print_notice
from heedful.cli.options import EncoderCompute
from heedful.cli.streams import input_lines


def similar(
    vectors: Annotated[Path, typer.Argument(help="A .npy file written by `heedful embed`.")],
    query: Annotated[str, typer.Argument(help="A text to compare with.")],
    compute: EncoderCompute,
    model: Annotated[
        Path | None, typer.Option(help="Folder of the encoder; by default the one that `heedful embed -o` noted.")
    ] = None,
    lines: Annotated[
        Path | None, typer.Option(help="The embedded texts; by default the file that `heedful embed -o` noted.")
    ] = None,
    top: Annotated[int, typer.Option(help="Number of results.")] = 5,
) -> None:
    """Find the lines that are most similar to a text. Prints cosine similarity, line number and the line.

    For example: heedful embed runs/bert -i lines -o vectors.npy, then heedful similar vectors.npy "a dog sleeps"
    """
    from heedful.errors import SettingError
    from heedful.inference.vector_file import nearest, other_model_warning, read_vectors
    from heedful.text.normalization import replace_surrogates

    table = read_vectors(vectors, model, lines)
    if top < 1:
        raise SettingError(f"--top is {top}; ask for one result or more.")
    if not query.strip():
        raise SettingError("the query is empty; give a text to compare with.")
    texts = list(input_lines(table.lines)) if table.lines else []
    if table.lines and len(texts) != len(table.vectors):
        raise SettingError(
            f"{table.lines} has {len(texts)} lines and {vectors} {len(table.vectors)} vectors; embed the file again."
        )
    encoder = open_encoder(table.model, compute)
    if warning := other_model_warning(vectors, table):
        print_notice(warning)
    vector = encoder.embed([replace_surrogates(query)], table.pooling)[0]
    if len(vector) != table.vectors.shape[1]:
        raise SettingError(
            f"{table.model} gives vectors of {len(vector)} numbers and {vectors} has {table.vectors.shape[1]}; "
            "give the model that wrote them with --model."
        )
    for score, number in nearest(table.vectors, vector, top):
        print(f"{score:.4f}\t{number + 1}" + (f"\t{texts[number]}" if texts else ""))
