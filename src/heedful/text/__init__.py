"""Text <-> token ids: tokenizers, vocabulary training, normalization and sentence splitting.

Knows neither the files of a corpus nor torch.
"""

from heedful.text.normalization import normalize_function
from heedful.text.plain_vocabulary import train_plain_vocabulary
from heedful.text.sentence_splitting import sentence_separator, split_long
from heedful.text.tokenizer import Specials, Tokenizer
from heedful.text.vocabulary import train_vocabulary
from heedful.text.words import NO_WORD, words_at, words_of_spans

__all__ = [
    "NO_WORD",
    "Specials",
    "Tokenizer",
    "normalize_function",
    "sentence_separator",
    "split_long",
    "train_plain_vocabulary",
    "train_vocabulary",
    "words_at",
    "words_of_spans",
]
