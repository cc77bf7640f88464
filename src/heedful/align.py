"""Which source word each target word comes from, read off the cross-attention of a given pair.

The pair is run through the model once, as in training, so alignments are there for any output, however it was found.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from heedful.data.batch import Batch
from heedful.model import EncoderDecoder
from heedful.record import record

Alignment = list[tuple[int, int]]  # (source word, target word), both counted from 0
WORD_START = "▁"


@torch.inference_mode()
def cross_attention(model: EncoderDecoder, batch: Batch, layer: int | None = None) -> Tensor:
    """-> (B, T, S): how much each label attends to each source token, averaged over the heads of one decoder layer.

    By default the last layer but one, which in trained Transformers follows the words most closely.
    """
    layers = model.config.decoder_layers
    name = f"decoder.{max(0, layers - 2) if layer is None else layer}.cross.weights"
    with record(model, name) as trace:
        model(batch.source, batch.decoder_input)
    return trace[name].mean(1)


def word_of_piece(pieces: Sequence[str]) -> list[int]:
    """['▁the', '▁do', 'g', '.'] -> [0, 1, 1, 1]: the whitespace-separated word that each piece belongs to."""
    words, number = [], -1
    for index, piece in enumerate(pieces):
        number += piece.startswith(WORD_START) or index == 0
        words.append(number)
    return words


def align_words(weights: Tensor, source_words: Sequence[int], target_words: Sequence[int]) -> Alignment:
    """(T, S) weights over pieces -> for each target word the source word that its pieces attend to most."""
    if not source_words or not target_words:
        return []
    by_source = weights.new_zeros(len(target_words), source_words[-1] + 1)
    by_source.index_add_(1, torch.tensor(source_words), weights[: len(target_words), : len(source_words)])
    by_word = weights.new_zeros(target_words[-1] + 1, by_source.size(1))
    by_word.index_add_(0, torch.tensor(target_words), by_source)
    return [(source, target) for target, source in enumerate(by_word.argmax(1).tolist())]


def pharaoh(alignment: Alignment) -> str:
    """[(0, 0), (2, 1)] -> '0-0 2-1'."""
    return " ".join(f"{source}-{target}" for source, target in sorted(alignment))
