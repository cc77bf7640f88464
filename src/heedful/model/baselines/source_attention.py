"""Attention of a recurrent decoder to the source: additive (Bahdanau et al.) or Luong's, global or local (2015)."""

import torch
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.model.attention.multi_head import TAPS, Attention
from heedful.model.context import LayerContext
from heedful.ops.dropout import dropout


class RNNSourceAttention(Attention):
    """One head over the encoder states h_j; its output is the context vector c = Σ softmax(score(s, h_j)) h_j.

    score is vᵀ tanh(W s + U h_j) (additive and concat), s · h_j (dot) or s · W h_j (general). Local attention looks at
    the window p - D … p + D. Its center p is the position of the target token (local-m), or is predicted from s, and
    the weights are multiplied by a Gaussian of deviation D / 2 around it (local-p).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(1, taps=TAPS[1:])  # no tap for queries: they are states, the output of a layer
        width, self.score, self.rate = config.d_model, config.source_attention, config.attention_dropout
        summed = self.score in ("additive", "concat")  # W [s; h] of Luong's concat is a sum of two products, too
        self.query = nn.Linear(width, width, bias=False) if summed else None
        self.key = nn.Linear(width, width, bias=False) if self.score != "dot" else None
        self.value = nn.Linear(width, 1, bias=False) if summed else None
        self.span, self.window = config.source_span, config.source_window
        self.center = nn.Linear(width, width, bias=False) if self.span == "local-p" else None
        self.center_value = nn.Linear(width, 1, bias=False) if self.span == "local-p" else None

    def project(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """(B, S, D) -> U h or W h, and h itself, (B, 1, S, D)."""
        key, value = (memory if self.key is None else self.key(memory)).unsqueeze(1), memory.unsqueeze(1)
        if self.tapped:
            key, value = self._tap("keys", len(memory))(key), self._tap("values", len(memory))(value)
        return key, value

    def weigh(self, state: Tensor, context: LayerContext) -> Tensor:
        """(R, T, D) -> (B, 1, W * T, S): the attention weights for every state, R / B rows to a sentence."""
        assert context.cache and context.cache.memory and context.memory_keep is not None
        key, _ = context.cache.memory
        query = state.reshape(key.size(0), 1, -1, state.size(-1))  # (B, 1, W * T, D)
        query = query if self.query is None else self.query(query)
        if self.value is None:
            scores = query @ key.transpose(2, 3)
        else:
            scores = self.value(torch.tanh(query.unsqueeze(3) + key.unsqueeze(2))).squeeze(4)
        if self.span == "global":
            return scores.masked_fill(~context.memory_keep, -torch.inf).softmax(-1)
        distance = torch.arange(key.size(2), device=key.device) - self._centers(state, context)  # (B, 1, W * T, S)
        keep = context.memory_keep & (distance.abs() <= self.window)
        keep = keep | (context.memory_keep & ~keep.any(-1, keepdim=True))  # all tokens of the window are masked
        weights = scores.masked_fill(~keep, -torch.inf).softmax(-1)
        if self.span == "local-p":
            weights = weights * torch.exp(-2 * (distance / self.window).square())  # σ = D / 2
        return weights

    def _centers(self, state: Tensor, context: LayerContext) -> Tensor:
        """(R, T, D) -> (B, 1, W * T, 1): the centers p of the windows of states that the cache has advanced by."""
        assert context.cache and context.memory_keep is not None
        lengths = memory_lengths(context.memory_keep)  # (B,)
        if self.center is None or self.center_value is None:
            place = context.cache.length - state.size(1) + torch.arange(state.size(1), device=state.device)
            place = place.repeat(len(state) // len(lengths)).to(state.dtype)  # (W * T)
            return torch.minimum(place, (lengths - 1).unsqueeze(1))[:, None, :, None]
        share: Tensor = self.center_value(torch.tanh(self.center(state))).sigmoid()  # (R, T, 1)
        return share.reshape(len(lengths), 1, -1, 1) * lengths.view(-1, 1, 1, 1)

    def combine(self, weights: Tensor, state: Tensor, context: LayerContext) -> Tensor:
        """(B, 1, W * T, S) -> (R, T, D): the context vectors for every state."""
        assert context.cache and context.cache.memory
        return (dropout(weights, self.rate, self.training) @ context.cache.memory[1]).view_as(state)

    def combine_tapped(self, weights: Tensor, state: Tensor, context: LayerContext) -> Tensor:
        """The same through the taps, which may replace weights and context vectors."""
        vectors = self.combine(self._tap("weights", len(state))(weights), state, context)
        return self._tap("heads", len(state))(vectors.unsqueeze(1)).squeeze(1)  # a tap sees (R, 1, T, D)


def memory_lengths(keep: Tensor) -> Tensor:
    """(B, 1, 1, S) -> (B,): the length up to the last real token; at least 1."""
    positions = torch.arange(1, keep.size(3) + 1, device=keep.device)
    return (keep[:, 0, 0] * positions).amax(1).clamp(min=1)
