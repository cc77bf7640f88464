"""Kinds of self-attention, one file per paper: full, and four that cost less than n².

Each is equivalent to a matrix of weights `(B, H, T, S)` that it never materializes. The weights are computed only if a
tap has a hook; tests compare both ways.
"""

from heedful.model.attention.linear import LinearAttention
from heedful.model.attention.linformer import LinformerAttention
from heedful.model.attention.multi_head import MultiHeadAttention
from heedful.model.attention.window import SparseAttention, WindowAttention

ATTENTIONS: dict[str, type[MultiHeadAttention]] = {
    "full": MultiHeadAttention,
    "window": WindowAttention,
    "sparse": SparseAttention,
    "linformer": LinformerAttention,
    "linear": LinearAttention,
}

__all__ = ["ATTENTIONS", "LinearAttention", "LinformerAttention", "SparseAttention", "WindowAttention"]
