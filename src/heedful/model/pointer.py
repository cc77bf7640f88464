"""Pointer-generator output (See et al., 2017): a token is generated from the vocabulary or copied from the source.

    P(w) = p_gen · P_vocab(w) + (1 - p_gen) · Σ a_i over the source tokens i that are w

Attention of its own, one head from the decoder's output to the encoder memory, gives the copy distribution a. Names and
numbers are sequences of rare subwords, which a small model learns to copy long before it can generate them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.config import ModelConfig

NEVER = -1e9  # a log-probability whose gradient is 0, not NaN as that of -inf


@dataclass(slots=True)
class CopySource:
    """What can be copied: the source tokens of B sentences, with keys for the attention."""

    ids: Tensor  # (B, S)
    keys: Tensor  # (B, S, D)
    keep: Tensor  # (B, S): True at real tokens

    def select(self, sources: Tensor) -> CopySource:
        """(B',) -> only these sentences."""
        return CopySource(*(tensor.index_select(0, sources) for tensor in (self.ids, self.keys, self.keep)))


class Pointer(nn.Module):
    """The attention over what can be copied, and the gate p_gen."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.query = nn.Linear(config.d_model, config.d_model)
        self.key = nn.Linear(config.d_model, config.d_model)
        self.gate = nn.Linear(config.d_model, 1)

    def source(self, ids: Tensor, memory: Tensor, keep: Tensor) -> CopySource:
        """(B, S), (B, S, D), (B, 1, 1, S) -> what the decoder can copy."""
        return CopySource(ids, self.key(memory), keep[:, 0, 0])

    def log_weights(self, hidden: Tensor, source: CopySource) -> Tensor:
        """(B, T, D) -> (B, T, S): the logarithm of a, in float32."""
        scores = (self.query(hidden) @ source.keys.transpose(1, 2)).float() / math.sqrt(hidden.size(-1))
        log_weights: Tensor = scores.masked_fill(~source.keep.unsqueeze(1), NEVER).log_softmax(-1)
        return log_weights

    def log_gates(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """(..., D) -> (...) twice: log p_gen and log (1 - p_gen), in float32."""
        gate = self.gate(hidden).float().squeeze(-1)
        return F.logsigmoid(gate), F.logsigmoid(-gate)

    def mix(self, hidden: Tensor, logits: Tensor, source: CopySource) -> Tensor:
        """(R, ..., D), (R, ..., V) -> (R, ..., V): the log-probabilities of the mixture; R / B rows a sentence."""
        sentences = len(source.ids)
        hidden = hidden.reshape(sentences, -1, hidden.size(-1))  # (B, N, D)
        generate, copy = (gate.unsqueeze(2) for gate in self.log_gates(hidden))  # (B, N, 1)
        generated = logits.float().log_softmax(-1).view(*hidden.shape[:2], -1)  # (B, N, V)
        weights = self.log_weights(hidden, source).exp()  # (B, N, S)
        copied = torch.zeros_like(generated).scatter_add(2, source.ids.unsqueeze(1).expand_as(weights), weights)
        return torch.logaddexp(generated + generate, copied.log() + copy).view_as(logits)

    def log_copied(self, hidden: Tensor, source: CopySource, labels: Tensor) -> Tensor:
        """(B, T, D), (B, T) -> (B, T): log Σ a_i over the source tokens that are the label."""
        other = source.ids.unsqueeze(1) != labels.unsqueeze(2)  # (B, T, S)
        return self.log_weights(hidden, source).masked_fill(other, NEVER).logsumexp(-1)
