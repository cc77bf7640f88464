"""Between PyTorch and the native engine: weights of a module for the engine, and the engine as a `NextToken`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from heedful.audio.log_mel import FeatureFrames
from heedful.native.decoder_session import DecoderSession
from heedful.native.engine import Array, Engine
from heedful.storage.module_weights import AnyModel


class ModuleWeights:
    """The weights of a PyTorch module as a `WeightSource`."""

    def __init__(self, model: AnyModel) -> None:
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
        self.session, self.length = DecoderSession(engine, torch.get_num_threads()), 0  # target tokens so far
        self.sentences = torch.from_numpy(self.session.add(_sources(engine, source, source_lengths)))  # (B,) searched
        self.nodes = np.full(len(source), -1, np.int32)  # (R,) last node of each row

    def advance(self, ids: Tensor) -> Tensor:
        """(R,) next token of each row -> (R, V) log-probabilities of the token after it."""
        self.length += 1
        self.session.engine.check_length(self.length)
        rows = self.sentences.repeat_interleave(len(ids) // len(self.sentences))
        return torch.from_numpy(self.session.step(rows.numpy(), self.nodes, ids.numpy()))

    def select(self, rows: Tensor, sources: Tensor | None = None) -> None:
        self.nodes = self.nodes[rows.numpy()]
        if sources is not None:
            self.sentences = self.sentences[sources]


def _sources(engine: Engine, source: Tensor, source_lengths: Tensor) -> list[list[int]] | list[FeatureFrames]:
    """(B, S) ids or (B, frames, F) features, (B,) lengths -> the sources without padding."""
    lengths, stride = source_lengths.tolist(), engine.config.feature_stride
    if engine.config.features:
        frames = [rows[: length * stride].numpy() for rows, length in zip(source, lengths, strict=True)]
        return [FeatureFrames(rows, length) for rows, length in zip(frames, lengths, strict=True)]
    return [ids[:length] for ids, length in zip(source.tolist(), lengths, strict=True)]
