"""Plain text -> a vocabulary that gives it back to the byte: subwords of bytes, bytes alone, or characters.

What a GPT reads and writes has lines, indentation and blanks, so nothing is normalised but, if asked, the case. Does
not know where the text comes from.
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

SMALLEST, LARGEST = 500, 32_000  # limits of a size chosen from the text
LINES = r"[^\n]*\n|[^\n]+"  # characters are looked up line by line


def train_plain_vocabulary(
    parts: Iterable[str],
    kind: str = "bpe",
    vocab_size: int | None = None,
    lowercase: bool = False,
    extra: Sequence[str] = (),
) -> Tokenizer:
    """Learn a vocabulary from parts of a text, which are read twice; `extra` adds special tokens, such as <mask>."""
    specials = [*SPECIALS, *extra]
    if kind != "bpe" and vocab_size is not None:
        raise DataError(
            f"text.vocab_size is {vocab_size}, but text.kind={kind} has as many tokens as there are {kind}."
        )
    inner = {"bpe": _subwords, "bytes": _bytes, "characters": _characters}[kind](parts, vocab_size, lowercase, specials)
    if lowercase:
        inner.normalizer = normalizers.Lowercase()
    inner.add_special_tokens(specials)
    return Tokenizer(inner)


def _subwords(parts: Iterable[str], size: int | None, lowercase: bool, specials: list[str]) -> tokenizers.Tokenizer:
    """Byte-pair encoding over bytes (Radford et al., 2019)."""
    inner = tokenizers.Tokenizer(models.BPE())
    inner.normalizer = normalizers.Lowercase() if lowercase else None
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    wanted = size or suggest_size(sum(len(part) for part in parts))
    least = len(specials) + 256
    if wanted < least:
        raise DataError(f"text.vocab_size is {wanted}, but special tokens and bytes alone take {least}; ask for more.")
    trainer = trainers.BpeTrainer(
        vocab_size=wanted,
        min_frequency=MIN_FREQUENCY,
        show_progress=False,
        special_tokens=specials,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    inner.train_from_iterator(parts, trainer)
    found = inner.get_vocab_size()
    if size is not None and found < size:
        raise DataError(
            f"text.vocab_size is {size}, but this text has only enough repetition for {found} tokens;"
            f" ask for at most {found} or leave it unset."
        )
    return inner


def _bytes(parts: Iterable[str], size: int | None, lowercase: bool, specials: list[str]) -> tokenizers.Tokenizer:
    tokens = [*specials, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    inner = tokenizers.Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    return inner


def _characters(parts: Iterable[str], size: int | None, lowercase: bool, specials: list[str]) -> tokenizers.Tokenizer:
    """Every character that came more than once; the others are spelled in bytes."""
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
    """10 tokens for the root of every six characters, in hundreds: small models learn small vocabularies faster."""
    size = min(max(10 * math.sqrt(characters / 6), SMALLEST), LARGEST)
    return round(size / 100) * 100
