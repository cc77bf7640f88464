"""Forced decoding in PyTorch, for the models that the native engine does not compute."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from heedful.audio.log_mel import FeatureFrames
from heedful.data.audio_batch import pad_features
from heedful.data.bucketing import plan_batches
from heedful.inference.forced_decoding import Floats, Pair
from heedful.inference.record import record
from heedful.model.attention.multi_head import Attention
from heedful.model.transformer import EncoderDecoder
from heedful.ops.precision import autocast

BATCH_TOKENS = 2048  # of either side that are computed at once
BATCH_LOGITS = 2**25


class TorchForcedDecoder:
    """A PyTorch module as a `ForcedDecoder`. Batches are padded, so a result may depend on its batch by rounding."""

    def __init__(self, model: EncoderDecoder, precision: str = "float32", device: str = "cpu") -> None:
        self.model, self.precision, self.device = model, precision, torch.device(device)
        self.attentions = {
            int(name.split(".")[1]): name
            for name, module in model.named_modules()
            if isinstance(module, Attention) and name.endswith(".cross")
        }
        self.heads = [
            (layer, head)
            for layer, name in self.attentions.items()
            for head in range(model.get_submodule(name).n_heads)  # type: ignore[arg-type]
        ]

    @torch.inference_mode()
    def log_probs(self, pairs: Sequence[Pair], hidden: Sequence[int] = ()) -> list[Floats]:
        result: list[Floats] = [np.empty(0, np.float32)] * len(pairs)
        for rows in self._batches(pairs, BATCH_LOGITS // self.model.config.vocab_size):
            source, lengths, target = self._padded(pairs, rows)
            for place, row in enumerate(rows):
                if hidden and hidden[row] >= 0:
                    source[place, hidden[row]] = self.model.config.pad_id
            with autocast(self.precision, self.device):
                logits = self.model.target_logits(source, target[:, :-1], lengths).float()  # (B, T, V)
            log_probs = logits.gather(2, target[:, 1:, None]).squeeze(2) - logits.logsumexp(2)
            for row, values in zip(rows, log_probs.cpu().numpy(), strict=True):
                result[row] = values[: len(pairs[row][1]) - 1]
        return result

    @torch.inference_mode()
    def attention(self, pairs: Sequence[Pair], heads: Sequence[tuple[int, int]]) -> list[Floats]:
        result: list[Floats] = [np.empty(0, np.float32)] * len(pairs)
        for rows in self._batches(pairs, BATCH_TOKENS):
            source, lengths, target = self._padded(pairs, rows)
            with record(self.model, "decoder.*.cross.weights") as trace, autocast(self.precision, self.device):
                self.model(source, target[:, :-1], lengths)
            weights = {layer: trace[f"{name}.weights"].as_subclass(Tensor) for layer, name in self.attentions.items()}
            chosen = torch.stack([weights[layer][:, head] for layer, head in heads], 1).float().cpu().numpy()
            for row, values in zip(rows, chosen, strict=True):
                result[row] = values[:, : len(pairs[row][1]) - 1, : len(pairs[row][0])]
        return result

    def _batches(self, pairs: Sequence[Pair], tokens: int) -> Iterator[list[int]]:
        """Pairs of similar length, as their indices."""
        lengths = np.array([(len(source), len(target)) for source, target in pairs], np.int32).reshape(-1, 2) - 1
        for rows in plan_batches(lengths[:, 0], lengths[:, 1], min(tokens, BATCH_TOKENS), 0, 0):
            yield rows.tolist()

    def _padded(self, pairs: Sequence[Pair], rows: Sequence[int]) -> tuple[Tensor, Tensor | None, Tensor]:
        """(B, S) sources, or (B, frames, F) features and the (B,) lengths of recordings; (B, T + 1) targets."""
        sources = [pairs[row][0] for row in rows]
        target = self._pad_ids([pairs[row][1] for row in rows])
        recordings = [source for source in sources if isinstance(source, FeatureFrames)]
        if recordings:
            features, lengths = pad_features(recordings)
            return features.to(self.device), lengths.to(self.device), target
        return self._pad_ids([source for source in sources if not isinstance(source, FeatureFrames)]), None, target

    def _pad_ids(self, rows: Sequence[Sequence[int]]) -> Tensor:
        padded = torch.nn.utils.rnn.pad_sequence([torch.tensor(ids) for ids in rows], True, self.model.config.pad_id)
        return padded.to(self.device)
