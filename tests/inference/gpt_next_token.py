"""A GPT as a `NextToken`, so that generation can be compared with the searches of `heedful.search`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from heedful.inference.context_window import ContextWindow
from heedful.model.transformer import DecoderModel


class GPTNextToken:
    """A GPT as a `NextToken`: the source is the prompt."""

    def __init__(self, model: DecoderModel) -> None:
        self.model = model
        config = model.config
        self.bos_id, self.eos_id, self.pad_id, self.vocab_size = (
            config.bos_id, config.eos_id, config.pad_id, config.vocab_size,
        )  # fmt: skip

    def start(self, source: Tensor, source_lengths: Tensor) -> _SearchCache:
        window = ContextWindow(self.model)
        for ids, length in zip(source.tolist(), source_lengths.tolist(), strict=True):
            window.add(ids[:length])
        return _SearchCache(window)

    def step(self, ids: Tensor, cache: Any) -> Tensor:
        if cache.started:
            cache.window.append(ids.tolist())
        cache.started = True
        return torch.from_numpy(cache.window.next())


@dataclass
class _SearchCache:
    window: ContextWindow
    started: bool = False

    def select(self, rows: Tensor, sources: Tensor | None = None) -> None:
        self.window.select(rows.tolist())
