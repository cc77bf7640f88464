"""Steps of a decoder in the engine whose search runs in Python, for encoder-decoders and GPTs. Imports no torch.

A sentence holds a tree of tokens with their keys and values (KV cache); a row of a step extends one node of one
sentence by a token. Rows of any sentence and depth share the GEMMs of a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_void_p

import numpy as np
import numpy.typing as npt

from heedful.audio.log_mel import FeatureFrames
from heedful.native.capi import pointer
from heedful.native.engine import Engine, concatenate_sources

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]


class DecoderSession:
    """The sentences that are being decoded, and their KV caches."""

    def __init__(self, engine: Engine, threads: int) -> None:
        self.engine = engine
        self.session = c_void_p(engine.library.heedful_decoder_new(engine.model, threads))
        engine.checked(0 if self.session else -1)

    def __del__(self) -> None:
        if getattr(self, "session", None):
            self.engine.library.heedful_decoder_free(self.session)

    def add(self, sources: Sequence[Sequence[int] | FeatureFrames]) -> Ints:
        """Encode the sources; a GPT has empty ones -> the numbers of the new sentences."""
        self.engine.check_length(0, max(map(len, sources), default=0))
        ids, frames, lengths = concatenate_sources(sources)
        if self.engine.config.family == "decoder":
            ids = None
        first = self.engine.checked(
            self.engine.library.heedful_decoder_add(self.session, *map(pointer, (ids, frames, lengths)), len(sources))
        )
        return np.arange(first, first + len(sources), dtype=np.int32)

    def drop(self, number: int) -> None:
        """Remove a sentence."""
        self.engine.library.heedful_decoder_drop(self.session, int(number))

    def step(
        self,
        sentences: npt.ArrayLike,
        nodes: Ints,
        ids: npt.ArrayLike,
        wanted: npt.NDArray[np.bool_] | None = None,
    ) -> Floats:
        """(R,) sentences, the nodes to extend (-1 at first), tokens -> (W, V) log-probabilities of the next token.

        `nodes` receives the new nodes; each new node of a sentence has the next number, and a row may extend a node of
        the same step. `wanted` tells which rows need log-probabilities, all by default.
        """
        rows, tokens = _ints(sentences), _ints(ids)
        chosen = None if wanted is None else np.ascontiguousarray(wanted, np.uint8)
        count = len(rows) if chosen is None else int(chosen.sum())
        log_probs = np.empty((count, self.engine.config.vocab_size), np.float32)
        self.engine.checked(
            self.engine.library.heedful_decoder_step(
                self.session, len(rows), *map(pointer, (rows, nodes, tokens, chosen, log_probs))
            )
        )
        return log_probs


def _ints(values: npt.ArrayLike) -> Ints:
    return np.ascontiguousarray(values, np.int32)
