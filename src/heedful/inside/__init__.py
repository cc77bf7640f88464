"""What a model attends to, made visible: recording, patching, the work of heads, alignments, the page."""

from heedful.inside.aligner import Aligner
from heedful.inside.explain import Explanation, explain
from heedful.inside.importance import Importance, importance
from heedful.inside.patch import Head, heads, heads_off, patch
from heedful.inside.picture import draw_attention, draw_cross_attention, draw_heads
from heedful.inside.run import Run, run
from heedful.inside.work import Work, work
from heedful.trace import Activation, Trace, names, record

__all__ = [
    "Activation",
    "Aligner",
    "Explanation",
    "Head",
    "Importance",
    "Run",
    "Trace",
    "Work",
    "draw_attention",
    "draw_cross_attention",
    "draw_heads",
    "explain",
    "heads",
    "heads_off",
    "importance",
    "names",
    "patch",
    "record",
    "run",
    "work",
]
