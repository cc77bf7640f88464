"""Forced decoding: given targets run through a model with teacher forcing. Imports no torch.

`native/forced_decoder.py` computes it in the engine, `torch_forced_decoder.py` in PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from heedful.native.forced_decoder import Floats, Pair
from heedful.text import Specials


class ForcedDecoder(Protocol):
    """An encoder-decoder that reads both sides of pairs."""

    heads: list[tuple[int, int]]  # all heads of cross-attention, as (layer, head)

    def log_probs(self, pairs: Sequence[Pair], hidden: Sequence[int] = ()) -> list[Floats]:
        """-> (T,) of each pair: the log-probability of each label, the end included.

        `hidden` is a source token of each pair that nothing may attend to, -1 for none.
        """

    def attention(self, pairs: Sequence[Pair], heads: Sequence[tuple[int, int]]) -> list[Floats]:
        """-> (heads, T, S) of each pair: cross-attention weights of these heads at each label."""


def frame_pair(source: Sequence[int], target: Sequence[int], source_ids: Specials, target_ids: Specials) -> Pair:
    """The ids of both sides with their special tokens."""
    return [*source, source_ids.eos], [target_ids.bos, *target, target_ids.eos]


def score_pairs(models: Sequence[ForcedDecoder], pairs: Sequence[Pair]) -> list[float]:
    """The log-probability of each target; an ensemble averages the probabilities of every label."""
    scores = []
    for of_models in zip(*(model.log_probs(pairs) for model in models), strict=True):
        mean = np.logaddexp.reduce(np.stack(of_models).astype(np.float64), 0) - np.log(len(of_models))
        scores.append(float(mean.sum()))
    return scores
