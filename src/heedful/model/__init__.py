"""ids -> hidden states -> logits. Reads like the paper; knows no file, vocabulary, rank or loss.

One legend for the shapes of the whole package:

    B batch    S source length    T target length    D d_model    H heads    d width of a head    F d_ff
    V vocabulary    W beam width    R rows of a search, B * W

Batches come first, heads are `(B, H, T, d)`, sequences are padded on the right, and masks say what may be attended to.
"""

from heedful.model.attention import Attention, Heads
from heedful.model.block import Block, FeedForward, Stack
from heedful.model.cache import Cache
from heedful.model.masks import causal, not_padding
from heedful.model.positions import POSITIONS, Position
from heedful.model.transformer import DecoderModel, Embedding, EncoderDecoder, EncoderModel, Model, build

__all__ = [
    "POSITIONS",
    "Attention",
    "Block",
    "Cache",
    "DecoderModel",
    "Embedding",
    "EncoderDecoder",
    "EncoderModel",
    "FeedForward",
    "Heads",
    "Model",
    "Position",
    "Stack",
    "build",
    "causal",
    "not_padding",
]
