"""Files -> examples -> ids on disk -> batches.

A `Corpus` (parallel, text or labeled) is checked, reported and encoded once into a memory-mapped cache; `bucketing` and
`blocks` plan the batches of an epoch. Modules that need torch (`batch`, `blocks`, `masking`) are not imported here.
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
)
from heedful.formats.pair_files import training_corpus, validation_corpus

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
