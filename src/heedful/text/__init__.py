"""Text <-> token ids: the first room of the house.

Learns a subword vocabulary from lines, turns text into ids and back, and cuts lines that are too long for a model.
Knows neither files of sentence pairs nor torch.
"""

from heedful.text.normalise import normaliser
from heedful.text.plain import learn_plain
from heedful.text.split import glue, split_long
from heedful.text.tokenizer import Specials, Tokenizer
from heedful.text.vocabulary import learn
from heedful.text.words import NO_WORD, words_at, words_of_spans

__all__ = [
    "NO_WORD",
    "Specials",
    "Tokenizer",
    "glue",
    "learn",
    "learn_plain",
    "normaliser",
    "split_long",
    "words_at",
    "words_of_spans",
]
