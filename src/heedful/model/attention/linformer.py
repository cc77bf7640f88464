"""Linformer (Wang et al., 2020): n keys and values are projected to k before attention, so the cost is n · k.

The projection is learned for a fixed maximum length and mixes all tokens, so it cannot be causal.
"""

import math

import torch
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.model.attention.multi_head import MultiHeadAttention
from heedful.model.context import LayerContext
from heedful.ops.dropout import dropout


class LinformerAttention(MultiHeadAttention):
    """softmax(Q (E K)ᵀ / √d_k) F V, with E and F (k, n) learned and shared by the heads of a layer.

    Padding is excluded from the projection. Projected keys have no position, so there is no position bias on scores.
    """

    def __init__(self, config: ModelConfig, causal: bool = False) -> None:
        super().__init__(config, causal)
        for name in ("mix_keys", "mix_values"):
            self.register_parameter(name, nn.Parameter(torch.empty(config.attention_rank, config.max_length)))
            nn.init.normal_(self.get_parameter(name), std=config.attention_rank**-0.5)

    def attend_heads(self, query: Tensor, key: Tensor, value: Tensor, context: LayerContext) -> Tensor:
        mix_keys, mix_values = (
            self.get_parameter(name)[:, : key.size(2)].to(key.dtype) for name in ("mix_keys", "mix_values")
        )
        if context.keep is not None:
            mix_keys, mix_values = mix_keys * context.keep, mix_values * context.keep  # (B, 1, k, S)
        scores = query @ (mix_keys @ key).transpose(2, 3) / math.sqrt(query.size(-1))  # (B, H, T, k)
        weights = dropout(scores.softmax(-1), self.rate, self.training)
        if self.tapped:
            heads = self._tap("weights", query.size(0))(weights @ mix_values) @ value  # the weights of the n tokens
            heads = self._tap("heads", query.size(0))(heads)
        else:
            heads = weights @ (mix_values @ value)
        return heads.transpose(1, 2).flatten(2)
