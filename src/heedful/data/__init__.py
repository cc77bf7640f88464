"""Files -> checked pairs -> ids on disk -> batches.

`prepare` does the first three steps once and keeps the result; `plan` decides the batches of an epoch. What needs torch
stands apart in `heedful.data.batch`, so that reading and reporting stay light.
"""

from heedful.data.bucketing import micro_batches, padding, plan_batches
from heedful.data.data_report import Lengths, ParallelReport, UnusualCharacter
from heedful.data.pairs import Pairs
from heedful.data.parallel_corpus import ParallelCorpus, prepare_parallel
from heedful.formats.line_files import (
    ParallelFiles,
    decode_lines,
    read_lines,
    read_pairs,
    read_tsv,
    training_corpus,
    validation_corpus,
)

__all__ = [
    "Lengths",
    "Pairs",
    "ParallelCorpus",
    "ParallelFiles",
    "ParallelReport",
    "UnusualCharacter",
    "decode_lines",
    "micro_batches",
    "padding",
    "plan_batches",
    "prepare_parallel",
    "read_lines",
    "read_pairs",
    "read_tsv",
    "training_corpus",
    "validation_corpus",
]
