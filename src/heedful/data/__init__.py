"""Files -> examples -> ids on disk -> batches.

A `Corpus` (parallel, text or labeled) is checked, reported and encoded once into a memory-mapped cache; `bucketing` and
`blocks` plan the batches of an epoch.
"""
