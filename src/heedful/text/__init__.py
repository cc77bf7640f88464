"""Text <-> token ids: the first room of the house.

Learns a subword vocabulary from lines, turns text into ids and back, and cuts lines that are too long for a model.
Knows neither files of sentence pairs nor torch.
"""

from heedful.text.normalization import normalize_function
from heedful.text.plain_vocabulary import train_plain_vocabulary
from heedful.text.sentence_splitting import glue, split_long
from heedful.text.tokenizer import Specials, Tokenizer
from heedful.text.vocabulary import train_vocabulary
from heedful.text.words import NO_WORD, words_at, words_of_spans

__all__ = [
    "NO_WORD",
    "Specials",
    "Tokenizer",
    "glue",
    "normalize_function",
    "split_long",
    "train_plain_vocabulary",
    "train_vocabulary",
    "words_at",
    "words_of_spans",
]
