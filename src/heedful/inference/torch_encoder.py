"""An encoder (BERT) in PyTorch: hidden states of texts in batches, and the heads over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.model.transformer import EncoderModel
from heedful.ops.precision import autocast

BATCH_TOKENS = 4096  # computed at once, padding included
Floats = NDArray[np.float32]


class TorchEncoder:
    """`EngineEncoder` in PyTorch, for all models and devices."""

    def __init__(self, model: EncoderModel, precision: str) -> None:
        self.model, self.precision, self.device = model, precision, model.embedding.weight.device

    @torch.inference_mode()
    def __call__(
        self, ids: Tensor, mask: Tensor | None = None, types: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """(B, S) three times -> (B, S, D) hidden states and, if the model has a pooler, (B, D) pooled states."""
        keep = None if mask is None else mask.bool()[:, None, None, :].to(self.device)
        with autocast(self.precision, self.device):
            hidden: Tensor = self.model(ids.to(self.device), keep, None if types is None else types.to(self.device))
            pooled = self.model.pool(hidden) if self.model.pooler is not None else None
        return hidden.float(), None if pooled is None else pooled.float()

    def hidden_states(self, texts: Sequence[Sequence[int]], types: Sequence[Sequence[int]]) -> list[Floats]:
        """Token ids and token types of each text -> (S, D) its hidden states."""
        return self._in_batches(texts, types, lambda ids, mask, kinds: self(ids, mask, kinds)[0])

    def label_logits(self, texts: Sequence[Sequence[int]], types: Sequence[Sequence[int]]) -> list[Floats]:
        """-> (C) logits of the labels of each text, or (S, C) of its tokens if the labels are those of tokens."""

        def classify(ids: Tensor, mask: Tensor, kinds: Tensor) -> Tensor:
            real = mask.bool().to(self.device)
            with autocast(self.precision, self.device):
                hidden = self.model(ids.to(self.device), real[:, None, None, :], kinds.to(self.device))
                return self.model.classify(hidden, real).float()

        return self._in_batches(texts, types, classify)

    @torch.inference_mode()
    def _in_batches(
        self,
        texts: Sequence[Sequence[int]],
        types: Sequence[Sequence[int]],
        compute: Callable[[Tensor, Tensor, Tensor], Tensor],
    ) -> list[Floats]:
        """What is computed from (B, S) ids, mask and types: a row per text, cut to its length if it has tokens.

        The longest texts come first.
        """
        order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
        results: dict[int, Floats] = {}
        while order:
            size = max(1, BATCH_TOKENS // len(texts[order[0]]))
            chosen, order = order[:size], order[size:]
            ids = torch.full((len(chosen), len(texts[chosen[0]])), self.model.config.pad_id)
            mask, kinds = torch.zeros_like(ids), torch.zeros_like(ids)
            for row, index in enumerate(chosen):
                length = len(texts[index])
                ids[row, :length], kinds[row, :length] = torch.tensor(texts[index]), torch.tensor(types[index])
                mask[row, :length] = 1
            output = compute(ids, mask, kinds).cpu().numpy()
            for row, index in enumerate(chosen):
                results[index] = output[row, : len(texts[index])] if output.ndim == 3 else output[row]
        return [results[index] for index in range(len(texts))]

    @torch.inference_mode()
    def token_logits(self, hidden: Floats) -> Floats:
        """(R, D) -> (R, V): logits of the tokens at these positions."""
        with autocast(self.precision, self.device):
            logits: Floats = self.model.project(torch.from_numpy(hidden.copy()).to(self.device)).float().cpu().numpy()
        return logits
