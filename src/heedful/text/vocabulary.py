"""Lines of text -> a subword vocabulary (byte-pair encoding; Sennrich et al., 2016).

Pieces never cross a space, and never mix words with punctuation or digits. Rare characters are encoded as UTF-8 bytes
(byte fallback), so every text can be encoded. Does not know where the lines come from.
"""

from __future__ import annotations

import itertools
import json
import math
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers

from heedful.errors import DataError
from heedful.text.normalization import WORD_START, normalizer
from heedful.text.placeholders import SLOT, VOCABULARY_SLOTS
from heedful.text.tokenizer import Tokenizer

SPECIALS = ["<pad>", "<unk>", "<s>", "</s>"]
MASK = "<mask>"  # of an encoder's vocabulary
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
COVERAGE = 0.9999  # share of the characters of a corpus that are not encoded as bytes
MIN_FREQUENCY = 2  # a merge of pieces that occur together once is noise
MAX_PIECE = 16  # characters; scripts without spaces would otherwise yield whole sentences as pieces
SMALLEST, LARGEST = 500, 37_000  # limits of a size chosen by the size of the corpus; the larger is the paper's
WORDS_OF_CHARACTERS = 6  # characters per word in scripts without spaces

# A word, a digit or a run of one punctuation mark, each with the space before it. Short elisions and clitics stay
# whole with their apostrophe (l', qu', 's, 'll): 5 % fewer tokens in English and French than cutting at each side.
# Merging takes time that grows with the square of the run, so runs end after 64 characters.
PIECES = (
    r"[▁\p{Zs}]?(?:\p{L}{1,2}['’](?=\p{L})|['’]\p{L}{1,2}(?!\p{L})"
    r"|[\p{L}\p{M}]{1,64}|\p{N}|([\p{P}\p{S}])\1{0,63}|[\p{Z}\p{C}]{1,64})"
)
# The same, with every slot of a placeholder a piece of its own, without the space before it.
PIECES_WITH_SLOTS = (
    SLOT.pattern + "|" + PIECES.replace(r"[\p{Z}\p{C}]{1,64}", rf"(?:(?!{SLOT.pattern})[\p{{Z}}\p{{C}}]){{1,64}}")
)


def train_vocabulary(
    lines: Iterable[str],
    vocab_size: int | None = None,
    lowercase: bool = False,
    extra: Sequence[str] = (),
    slots: bool = False,
    characters: Sequence[str] = (),
) -> Tokenizer:
    """Train a vocabulary of `vocab_size`, by default chosen by the number of words; deterministic.

    The lines are read twice, so an iterator is first collected in memory. `extra` adds special tokens, such as <mask>;
    `slots` adds the slots of placeholders, `characters` those that must not be encoded as bytes.
    """
    if iter(lines) is lines:
        lines = list(lines)
    alphabet, words = _survey(lines, lowercase)
    if slots:
        alphabet = [*(character for character in alphabet if not SLOT.match(character)), *VOCABULARY_SLOTS]
    alphabet += [character for character in characters if character not in alphabet]
    fixed = [*SPECIALS, *extra, *BYTES]
    least = len(fixed) + len(alphabet)
    size = suggest_size(words, least) if vocab_size is None else vocab_size
    if size < least:
        raise DataError(
            f"text.vocab_size is {size}, but the special tokens, 256 bytes and {len(alphabet)} characters of this"
            f" corpus alone need {least}; set a larger one or leave it unset."
        )
    pieces = PIECES_WITH_SLOTS if slots else PIECES
    trained = _train(lines, size - len(BYTES), alphabet, lowercase, [*SPECIALS, *extra], pieces)
    tokenizer = _with_bytes(trained, [*SPECIALS, *extra])
    if vocab_size is not None and tokenizer.vocab_size < size:
        raise DataError(
            f"text.vocab_size is {size}, but this corpus has only enough repetition for {tokenizer.vocab_size} tokens;"
            f" set at most {tokenizer.vocab_size} or leave it unset."
        )
    return tokenizer


def slot_ids(tokenizer: Tokenizer) -> tuple[int, ...] | None:
    """The ids of the slots, if the vocabulary has all of them."""
    ids = tuple(tokens[-1] for tokens in tokenizer.encode_batch([f"a{slot}" for slot in VOCABULARY_SLOTS]) if tokens)
    decoded = [tokenizer.decode([token]) for token in ids]
    return ids if decoded == VOCABULARY_SLOTS else None


def suggest_size(words: int, least: int) -> int:
    """12 * sqrt(words), rounded to hundreds (10,300 for Multi30k); at least one merge per character."""
    size = min(max(12 * math.sqrt(words), SMALLEST), LARGEST)
    smallest = least + (least - len(SPECIALS) - len(BYTES))
    return max(round(size / 100) * 100, smallest)


def _survey(lines: Iterable[str], lowercase: bool) -> tuple[list[str], int]:
    """The alphabet of the vocabulary, and the number of words."""
    characters: Counter[str] = Counter()
    count = 0
    for line in lines:
        characters.update(unicodedata.normalize("NFC", line.lower() if lowercase else line))
        count += 1
    total = sum(characters.values())
    words = max(characters[" "] + count, total // WORDS_OF_CHARACTERS)
    for blank in "\t\n\x0b\x0c\r \x85\u2028\u2029":
        characters.pop(blank, None)
    # Sorted by count, then by code point: the library would break ties at random.
    ranked = sorted(characters.items(), key=lambda item: (-item[1], item[0]))
    covered = itertools.accumulate((n for _, n in ranked), initial=0)
    enough = COVERAGE * sum(characters.values())
    frequent = [c for (c, n), before in zip(ranked, covered, strict=False) if n >= MIN_FREQUENCY and before < enough]
    return [WORD_START, *(c for c in frequent if c != WORD_START)], words


def _train(
    lines: Iterable[str], size: int, alphabet: list[str], lowercase: bool, specials: list[str], pieces: str
) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizer(lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Metaspace(replacement=WORD_START, prepend_scheme="always", split=True),
            pre_tokenizers.Split(Regex(pieces), "isolated"),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=MIN_FREQUENCY,
        show_progress=False,
        special_tokens=specials,
        limit_alphabet=len(alphabet),
        initial_alphabet=alphabet,
        max_token_length=MAX_PIECE,
    )
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def _with_bytes(trained: tokenizers.Tokenizer, specials: list[str]) -> Tokenizer:
    """Insert the 256 byte tokens after the special tokens.

    The trainer accepts them only as special tokens, which decoding skips.
    """
    model = json.loads(trained.to_str())["model"]
    learned = sorted(set(model["vocab"]) - set(specials), key=model["vocab"].__getitem__)
    vocabulary = {token: i for i, token in enumerate([*specials, *BYTES, *learned])}
    merges = [tuple(merge) for merge in model["merges"]]
    tokenizer = tokenizers.Tokenizer(
        models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", fuse_unk=False, byte_fallback=True)
    )
    tokenizer.normalizer = trained.normalizer
    tokenizer.pre_tokenizer = trained.pre_tokenizer
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(WORD_START, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(specials)
    return Tokenizer(tokenizer)
