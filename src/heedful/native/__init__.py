"""The compiled engine: an encoder-decoder's steps, beam search and gradients in C++, for the CPU that it runs on.

Torch is imported only by `bridge` and `learner`.
"""

from heedful.native.engine import Engine, EngineSearch, Weights, library, rows_at_once
from heedful.native.flow import Asked, EngineSearches, search_all
from heedful.native.known import computes, tensors

__all__ = [
    "Asked",
    "Engine",
    "EngineSearch",
    "EngineSearches",
    "Weights",
    "computes",
    "library",
    "rows_at_once",
    "search_all",
    "tensors",
]
