"""The compiled engine: an encoder-decoder's products, steps and beam search in C++, for the CPU that it runs on."""

from heedful.native.engine import Engine, EngineNextToken, EngineSearch, Weights, computes, library, rows_at_once
from heedful.native.flow import Asked, EngineSearches, search_all

__all__ = [
    "Asked",
    "Engine",
    "EngineNextToken",
    "EngineSearch",
    "EngineSearches",
    "Weights",
    "computes",
    "library",
    "rows_at_once",
    "search_all",
]
