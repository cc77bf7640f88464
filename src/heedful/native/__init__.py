"""The compiled engine: an encoder-decoder's steps, beam search and gradients in C++, for the CPU that it runs on.

Torch is imported only by `bridge` and `learner`.
"""

from heedful.native.engine import Engine, EngineSearch, WeightSource, library, rows_per_step
from heedful.native.support import supports

__all__ = [
    "Engine",
    "EngineSearch",
    "WeightSource",
    "library",
    "rows_per_step",
    "supports",
]
