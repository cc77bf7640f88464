"""Interpretability: recording and patching activations, roles of attention heads, alignments, the explain page."""

from heedful.inference.aligner import Aligner
from heedful.inference.record import Activation, Trace, activation_names, record
from heedful.inside.explain import Explanation, explain
from heedful.inside.figures import draw_attention, draw_cross_attention, draw_heads
from heedful.inside.head_roles import HeadRole, head_roles
from heedful.inside.importance import Importance, importance
from heedful.inside.patch import Head, heads, heads_off, patch
from heedful.inside.recorded_run import RecordedRun, record_run

__all__ = [
    "Activation",
    "Aligner",
    "Explanation",
    "Head",
    "HeadRole",
    "Importance",
    "RecordedRun",
    "Trace",
    "activation_names",
    "draw_attention",
    "draw_cross_attention",
    "draw_heads",
    "explain",
    "head_roles",
    "heads",
    "heads_off",
    "importance",
    "patch",
    "record",
    "record_run",
]
