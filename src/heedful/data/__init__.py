"""Files -> checked pairs -> ids on disk -> batches.

`prepare` does the first three steps once and keeps the result; `plan` decides the batches of an epoch. What needs torch
stands apart in `heedful.data.batch`, so that reading and reporting stay light.
"""

from heedful.data.pairs import Pairs
from heedful.data.plan import padding, pieces, plan
from heedful.data.readers import (
    Corpus,
    decode_lines,
    read_lines,
    read_pairs,
    read_tsv,
    training_corpus,
    validation_corpus,
)
from heedful.data.report import Lengths, Oddity, Report
from heedful.data.store import Store, prepare

__all__ = [
    "Corpus",
    "Lengths",
    "Oddity",
    "Pairs",
    "Report",
    "Store",
    "decode_lines",
    "padding",
    "pieces",
    "plan",
    "prepare",
    "read_lines",
    "read_pairs",
    "read_tsv",
    "training_corpus",
    "validation_corpus",
]
