"""Kinds of self-attention that cost less than full attention, each in a file to be read beside its paper.

Each says which weights it stands for, `(B, H, T, S)`, and finds the same without ever holding them. The weights are
computed only for a listener, and in tests, which hold the two equal.
"""

from heedful.model.attention import Attention
from heedful.model.kinds.kernel import Kernel
from heedful.model.kinds.lowrank import LowRank
from heedful.model.kinds.window import Sparse, Window

ATTENTIONS: dict[str, type[Attention]] = {
    "full": Attention,
    "window": Window,
    "sparse": Sparse,
    "lowrank": LowRank,
    "kernel": Kernel,
}

__all__ = ["ATTENTIONS", "Kernel", "LowRank", "Sparse", "Window"]
