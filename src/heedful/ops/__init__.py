"""The few hot operations, each with a plain body that reads like the paper and fast bodies that tests hold equal to it.

Nothing here has parameters or knows a model.
"""

from heedful.ops.attention import attend
from heedful.ops.cross_entropy import linear_cross_entropy
from heedful.ops.dropout import dropout

__all__ = ["attend", "dropout", "linear_cross_entropy"]
