"""Between PyTorch and the native engine: weights of a module for the engine, and the engine as a `NextToken`."""

from __future__ import annotations

from collections.abc import Iterator
from ctypes import c_void_p
from typing import Any

import torch
from torch import Tensor

from heedful.errors import HeedfulError
from heedful.model.transformer import EncoderDecoder
from heedful.native.engine import Array, Engine


class ModuleWeights:
    """The weights of a PyTorch module as a `WeightSource`."""

    def __init__(self, model: EncoderDecoder) -> None:
        self.model, self.config = model, model.config

    def tensors(self) -> Iterator[tuple[str, Array, None]]:
        for name, parameter in self.model.named_parameters():
            yield name, parameter.detach().float().numpy(), None


class EngineNextToken:
    """The engine as a `NextToken`, for the searches of `heedful.search`."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        config = engine.config
        self.bos_id, self.eos_id, self.pad_id = config.bos_id, config.eos_id, config.pad_id
        self.vocab_size = config.vocab_size

    def start(self, source: Tensor, source_lengths: Tensor) -> EngineCache:
        return EngineCache(self.engine, source, source_lengths)

    def step(self, ids: Tensor, cache: Any) -> Tensor:
        log_probs: Tensor = cache.advance(ids)
        return log_probs


class EngineCache:
    """Rows are nodes of prefix trees in the engine: reordering them permutes numbers and copies no keys or values."""

    def __init__(self, engine: Engine, source: Tensor, source_lengths: Tensor) -> None:
        self.engine, self.length = engine, 0  # target tokens so far
        engine.check_length(source.size(1))
        lengths = source_lengths.int().contiguous()
        keep = torch.arange(source.size(1)) < lengths.unsqueeze(1)
        ids = source[keep].int()
        steps = engine.library.heedful_decoder_new(
            engine.model, torch.get_num_threads(), _pointer(ids), _pointer(lengths), len(lengths)
        )
        if not steps:
            raise HeedfulError(f"the native engine failed: {engine.error()}.")
        self.steps = c_void_p(steps)
        self.sentences = torch.arange(len(source), dtype=torch.int32)  # (B,) sentences that are still searched
        self.nodes = torch.full((len(source),), -1, dtype=torch.int32)  # (R,) last node of each row

    def __del__(self) -> None:
        if getattr(self, "steps", None):
            self.engine.library.heedful_decoder_free(self.steps)

    def advance(self, ids: Tensor) -> Tensor:
        """(R,) next token of each row -> (R, V) log-probabilities of the token after it."""
        self.length += 1
        self.engine.check_length(self.length)
        rows, tokens = len(ids), ids.int().contiguous()
        sentence_of_row = self.sentences.repeat_interleave(rows // len(self.sentences))
        log_probs = torch.empty(rows, self.engine.config.vocab_size)
        self.engine.checked(
            self.engine.library.heedful_decoder_step(
                self.steps, rows, _pointer(sentence_of_row), _pointer(self.nodes), _pointer(tokens), _pointer(log_probs)
            )
        )
        return log_probs

    def select(self, rows: Tensor, sources: Tensor | None = None) -> None:
        self.nodes = self.nodes[rows]
        if sources is not None:
            self.sentences = self.sentences[sources]


def _pointer(tensor: Tensor) -> c_void_p:
    return c_void_p(tensor.data_ptr())
