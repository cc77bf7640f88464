"""Forced decoding in the engine: log-probabilities of given targets, and cross-attention weights. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref
from itertools import product

import numpy as np
import numpy.typing as npt

from heedful.audio.log_mel import FeatureFrames
from heedful.native.capi import ForcedPairsStruct, concatenate, pointer
from heedful.native.engine import Engine, concatenate_sources

Floats = npt.NDArray[np.float32]
# A source with its end, or the frames of a recording; a target with its start and its end.
Pair = tuple[Sequence[int] | FeatureFrames, Sequence[int]]


class EngineForcedDecoder:
    """An encoder-decoder in the engine as a `ForcedDecoder`. A pair has the same results, to the bit, in any batch."""

    def __init__(self, engine: Engine, threads: int) -> None:
        self.engine, self.threads = engine, threads
        self.heads = list(product(range(engine.config.decoder_layers), range(engine.config.n_heads)))

    def log_probs(self, pairs: Sequence[Pair], hidden: Sequence[int] = ()) -> list[Floats]:
        """-> (T,) of each pair: the log-probability of each label. `hidden` source tokens are masked, -1 for none."""
        return self._force(pairs, hidden, ())[0]

    def attention(self, pairs: Sequence[Pair], heads: Sequence[tuple[int, int]]) -> list[Floats]:
        """-> (heads, T, S) of each pair: the cross-attention weights of heads, given as (layer, head)."""
        return self._force(pairs, (), [layer * self.engine.config.n_heads + head for layer, head in heads])[1]

    def _force(
        self, pairs: Sequence[Pair], hidden: Sequence[int], heads: Sequence[int]
    ) -> tuple[list[Floats], list[Floats]]:
        sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
        self.engine.check_length(0, max(map(len, sources), default=0))
        self.engine.check_length(max(map(len, targets), default=1) - 1)
        shapes = [(len(target) - 1, len(source)) for source, target in pairs]
        log_probs = np.empty(sum(labels for labels, _ in shapes), np.float32)
        weights = np.empty(len(heads) * sum(labels * length for labels, length in shapes), np.float32)
        arrays = [
            *concatenate_sources(sources),
            np.array(hidden, np.int32) if hidden else None,
            *concatenate(targets),
            np.array(heads, np.int32),
        ]
        batch = ForcedPairsStruct(*map(pointer, arrays), len(pairs), len(heads))
        results = pointer(log_probs), pointer(weights)
        self.engine.checked(self.engine.library.heedful_force(self.engine.model, self.threads, byref(batch), *results))
        by_pair = [(len(heads), *shape) for shape in shapes]
        return _split(log_probs, [(labels,) for labels, _ in shapes]), _split(weights, by_pair)


def _split(values: Floats, shapes: Sequence[tuple[int, ...]]) -> list[Floats]:
    """Concatenated arrays, one of each shape."""
    ends = np.cumsum([np.prod(shape, dtype=np.int64) for shape in shapes], dtype=np.int64)
    starts = np.concatenate(([0], ends[:-1]))
    return [values[start:end].reshape(shape) for start, end, shape in zip(starts, ends, shapes, strict=False)]
