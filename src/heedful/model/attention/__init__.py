"""Kinds of self-attention that cost less than full attention, each in a file to be read beside its paper.

Each says which weights it stands for, `(B, H, T, S)`, and finds the same without ever holding them. The weights are
computed only for a listener, and in tests, which hold the two equal.
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
