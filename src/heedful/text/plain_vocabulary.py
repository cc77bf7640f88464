"""Vocabularies of language models, which reproduce plain text exactly: byte-level BPE, bytes, or characters.

Lines, indentation and white space matter to a language model, so nothing but (optionally) case is normalized. Does not
know where the text comes from.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from heedful.errors import DataError
from heedful.text.tokenizer import Tokenizer
from heedful.text.vocabulary import BYTES, MIN_FREQUENCY, SPECIALS

SMALLEST, LARGEST = 500, 32_000  # limits of a size chosen by the length of the text
LINES = r"[^\n]*\n|[^\n]+"  # characters are encoded line by line


def train_plain_vocabulary(
    parts: Iterable[str],
    kind: str = "bpe",
    vocab_size: int | None = None,
    lowercase: bool = False,
    extra: Sequence[str] = (),
) -> Tokenizer:
    """Train a vocabulary on parts of a text, which are read twice; `extra` adds special tokens, such as <mask>."""
    specials = [*SPECIALS, *extra]
    if kind != "bpe" and vocab_size is not None:
        raise DataError(
            f"text.vocab_size is {vocab_size}, but text.kind={kind} has as many tokens as there are {kind}."
        )
    inner = {"bpe": _train_bpe, "bytes": _byte_vocabulary, "characters": _character_vocabulary}[kind](
        parts, vocab_size, lowercase, specials
    )
    if lowercase:
        inner.normalizer = normalizers.Lowercase()
    inner.add_special_tokens(specials)
    return Tokenizer(inner)


def _train_bpe(parts: Iterable[str], size: int | None, lowercase: bool, specials: list[str]) -> tokenizers.Tokenizer:
    """Byte-pair encoding over bytes (Radford et al., 2019)."""
    inner = tokenizers.Tokenizer(models.BPE())
    inner.normalizer = normalizers.Lowercase() if lowercase else None
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    target = size or suggest_size(sum(len(part) for part in parts))
    least = len(specials) + 256
    if target < least:
        raise DataError(f"text.vocab_size is {target}, but special tokens and bytes need {least}; set a larger one.")
    trainer = trainers.BpeTrainer(
        vocab_size=target,
        min_frequency=MIN_FREQUENCY,
        show_progress=False,
        special_tokens=specials,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    inner.train_from_iterator(parts, trainer)
    reached = inner.get_vocab_size()
    if size is not None and reached < size:
        raise DataError(
            f"text.vocab_size is {size}, but this text has only enough repetition for {reached} tokens;"
            f" set at most {reached} or leave it unset."
        )
    return inner


def _byte_vocabulary(
    parts: Iterable[str], size: int | None, lowercase: bool, specials: list[str]
) -> tokenizers.Tokenizer:
    tokens = [*specials, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    inner = tokenizers.Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    return inner


def _character_vocabulary(
    parts: Iterable[str], size: int | None, lowercase: bool, specials: list[str]
) -> tokenizers.Tokenizer:
    """Every character that occurs more than once; others are encoded as UTF-8 bytes."""
    counts: Counter[str] = Counter()
    for part in parts:
        counts.update(part.lower() if lowercase else part)
    known = sorted(character for character, count in counts.items() if count >= MIN_FREQUENCY)
    vocabulary = {token: i for i, token in enumerate([*specials, *BYTES, *known])}
    inner = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>", byte_fallback=True))
    inner.pre_tokenizer = pre_tokenizers.Split(Regex(LINES), "isolated")
    inner.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return inner


def suggest_size(characters: int) -> int:
    """10 * sqrt(characters / 6), rounded to hundreds: small models train faster with small vocabularies."""
    size = min(max(10 * math.sqrt(characters / 6), SMALLEST), LARGEST)
    return round(size / 100) * 100
