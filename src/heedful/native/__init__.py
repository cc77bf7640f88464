"""The compiled engine: an encoder-decoder's steps, beam search and gradients in C++, for the CPU that it runs on.

Torch is imported only by `bridge` and `learner`.
"""

from heedful.native.engine import Engine, EngineSearch, WeightSource, library, rows_at_once
from heedful.native.scheduler import SearchPool, SearchRequest, search_all
from heedful.native.support import supports

__all__ = [
    "Engine",
    "EngineSearch",
    "SearchPool",
    "SearchRequest",
    "WeightSource",
    "library",
    "rows_at_once",
    "search_all",
    "supports",
]
