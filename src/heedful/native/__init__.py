"""The native engine: decoding steps, beam search and gradients of an encoder-decoder in C++, compiled for this CPU.

Only `torch_bridge`, `trainer`, `flat_batch`, `adam_step` and `muon_step` import torch.
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
