"""What a model attends to, made visible: recording, patching, the work of heads, alignments, the page."""

from heedful.inside.patch import Head, heads, heads_off, patch
from heedful.inside.picture import draw_cross_attention
from heedful.record import Activation, Trace, names, record

__all__ = [
    "Activation",
    "Head",
    "Trace",
    "draw_cross_attention",
    "heads",
    "heads_off",
    "names",
    "patch",
    "record",
]
