"""Pretrained word vectors as a start for embeddings (word2vec and GloVe text formats)."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from heedful.errors import DataError
from heedful.formats.line_files import read_lines
from heedful.model.transformer import Model
from heedful.text import Tokenizer
from heedful.training.step import freeze_rows


def use_pretrained_embeddings(
    model: Model, source: Tokenizer, target: Tokenizer, path: Path, freeze: bool
) -> list[int]:
    """Put the vectors of all words that are one token into the embeddings; how many each vocabulary took."""
    sides = [(model.embedding, target)]
    separate = getattr(model, "source_embedding", None)
    if separate is not None:
        sides.append((separate, source))
    counts = []
    for embedding, tokenizer in sides:
        ids, vectors = read_embeddings(path, tokenizer, model.config.d_model)
        with torch.no_grad():
            embedding.weight[ids] = vectors / embedding.scale  # so that what the model sees is the vector itself
        if freeze:
            freeze_rows(embedding.weight, ids)
        counts.append(len(ids))
    return counts


def read_embeddings(path: Path, tokenizer: Tokenizer, width: int) -> tuple[Tensor, Tensor]:
    """-> (N), (N, D): the ids that have a vector, and the vectors."""
    found: dict[int, list[float]] = {}
    for number, line in enumerate(read_lines(path), 1):
        word, *numbers = line.rstrip().split(" ")
        if number == 1 and len(numbers) == 1:  # word2vec says first how many words and how wide
            continue
        if number > 2 and len(numbers) > width:  # some words of GloVe hold spaces, and no token does
            continue
        if len(numbers) != width:
            raise DataError(
                f"{path}, line {number}: {len(numbers)} numbers, and model.d_model is {width}; they must be equal."
            )
        ids = tokenizer.encode(word)
        if len(ids) == 1 and ids[0] not in found:
            try:
                found[ids[0]] = [float(value) for value in numbers]
            except ValueError:
                raise DataError(f"{path}, line {number}: what follows the word is not all numbers.") from None
    if not found:
        raise DataError(f"{path} has no word that is one token of this vocabulary; give the vectors of its language.")
    return torch.tensor(list(found)), torch.tensor(list(found.values()))
