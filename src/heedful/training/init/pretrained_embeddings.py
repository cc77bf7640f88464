"""Pretrained embeddings: word vectors in the text formats of word2vec and GloVe."""

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
    """Initialize the embeddings of words that are one token; the number of them in each vocabulary."""
    sides = [(model.embedding, target)]
    separate = getattr(model, "source_embedding", None)
    if separate is not None:
        sides.append((separate, source))
    counts = []
    for embedding, tokenizer in sides:
        ids, vectors = read_embeddings(path, tokenizer, model.config.d_model)
        with torch.no_grad():
            embedding.weight[ids] = vectors / embedding.scale  # the model multiplies by the scale
        if freeze:
            freeze_rows(embedding.weight, ids)
        counts.append(len(ids))
    return counts


def read_embeddings(path: Path, tokenizer: Tokenizer, width: int) -> tuple[Tensor, Tensor]:
    """-> (N), (N, D): the ids that have a vector, and the vectors."""
    vectors: dict[int, list[float]] = {}
    for number, line in enumerate(read_lines(path), 1):
        word, *numbers = line.rstrip().split(" ")
        if number == 1 and len(numbers) == 1:  # the header of word2vec: number of words, width
            continue
        if number > 2 and len(numbers) > width:  # GloVe has words with spaces; no token has
            continue
        if len(numbers) != width:
            raise DataError(
                f"{path}, line {number}: {len(numbers)} numbers, and model.d_model is {width}; they must be equal."
            )
        ids = tokenizer.encode(word)
        if len(ids) == 1 and ids[0] not in vectors:
            try:
                vectors[ids[0]] = [float(value) for value in numbers]
            except ValueError:
                raise DataError(f"{path}, line {number}: the word must be followed by numbers.") from None
    if not vectors:
        raise DataError(f"{path} has no word that is one token of this vocabulary; give the vectors of its language.")
    return torch.tensor(list(vectors)), torch.tensor(list(vectors.values()))
