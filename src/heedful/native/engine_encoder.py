"""An encoder (BERT) in the engine: hidden states, and the heads over them. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from heedful.native.capi import concatenate, pointer
from heedful.native.engine import Engine

Floats = npt.NDArray[np.float32]


class EngineEncoder:
    """Texts of any length are computed together without padding: each has the result that it has alone, to the bit."""

    def __init__(self, engine: Engine, threads: int) -> None:
        self.engine, self.threads = engine, threads

    def hidden_states(self, texts: Sequence[Sequence[int]], types: Sequence[Sequence[int]]) -> list[Floats]:
        """Token ids and token types of each text -> (S, D) its hidden states."""
        (ids, lengths), (kinds, _) = concatenate(texts), concatenate(types)
        self.engine.check_length(lengths.max(initial=0))
        hidden = np.empty((len(ids), self.engine.config.d_model), np.float32)
        library = self.engine.library
        self.engine.checked(
            library.heedful_encode(
                self.engine.model, self.threads, *map(pointer, (ids, kinds, lengths)), len(texts), pointer(hidden)
            )
        )
        return np.split(hidden, np.cumsum(lengths)[:-1])

    def token_logits(self, hidden: Floats) -> Floats:
        """(R, D) -> (R, V): logits of the tokens at these positions."""
        return self._head("logits", hidden, self.engine.config.vocab_size)

    def label_logits(self, texts: Sequence[Sequence[int]], types: Sequence[Sequence[int]]) -> list[Floats]:
        """-> (C) logits of the labels of each text, or (S, C) of its tokens if the labels are those of tokens."""
        states, config = self.hidden_states(texts, types), self.engine.config
        if config.label_kind in ("tagging", "question-answering"):
            return [self.class_logits(tokens) for tokens in states]
        if config.pooler:
            return list(self.class_logits(self.pool(np.stack([tokens[0] for tokens in states]))))
        return list(self.class_logits(np.stack([tokens.mean(0) for tokens in states])))

    def pool(self, first: Floats) -> Floats:
        """(R, D) hidden states of first tokens -> (R, D): pooled states."""
        return self._head("pool", first, self.engine.config.d_model)

    def class_logits(self, pooled: Floats) -> Floats:
        """(R, D) -> (R, C): logits of the labels."""
        return self._head("classify", pooled, len(self.engine.config.labels))

    def _head(self, name: str, rows: Floats, width: int) -> Floats:
        rows, output = np.ascontiguousarray(rows, np.float32), np.empty((len(rows), width), np.float32)
        function = getattr(self.engine.library, f"heedful_encoder_{name}")
        self.engine.checked(function(self.engine.model, self.threads, pointer(rows), len(rows), pointer(output)))
        return output
