"""Linformer (Wang et al., 2020): n keys and values are mixed into k before anything is compared, so the cost is n · k.

The mixture is learned for a fixed longest length and takes in all tokens, so it cannot be causal.
"""

import math

import torch
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.model.attention.multi_head import MultiHeadAttention
from heedful.model.cache import LayerCache
from heedful.model.positions import Position
from heedful.ops.dropout import dropout


class LinformerAttention(MultiHeadAttention):
    """softmax(Q (E K)ᵀ / √d_k) F V, with E and F (k, n) learned and shared by the heads of a layer.

    Padding is left out of the mixture. Mixed keys have no places, so positions cannot act on the scores.
    """

    def __init__(self, config: ModelConfig, causal: bool = False) -> None:
        super().__init__(config, causal)
        for name in ("mix_keys", "mix_values"):
            self.register_parameter(name, nn.Parameter(torch.empty(config.attention_rank, config.max_length)))
            nn.init.normal_(self.get_parameter(name), std=config.attention_rank**-0.5)

    def _find(
        self,
        x: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        keep: Tensor | None,
        position: Position,
        cache: LayerCache | None,
    ) -> Tensor:
        mix_keys, mix_values = (
            self.get_parameter(name)[:, : key.size(2)].to(key.dtype) for name in ("mix_keys", "mix_values")
        )
        if keep is not None:
            mix_keys, mix_values = mix_keys * keep, mix_values * keep  # (B, 1, k, S)
        scores = query @ (mix_keys @ key).transpose(2, 3) / math.sqrt(query.size(-1))  # (B, H, T, k)
        weights = dropout(scores.softmax(-1), self.rate, self.training)
        if any(self._listeners):
            heads = self._tap("weights", x)(weights @ mix_values) @ value  # what each token counts in the end
            heads = self._tap("heads", x)(heads)
        else:
            heads = weights @ (mix_values @ value)
        return heads.transpose(1, 2).flatten(2)
