"""The embedded corpus: a small English-German grammar that writes sentence pairs with their true word alignment.

A structure is chosen at random (`sentences`, out of `phrases` and the `lexicon`) and said in both languages (`english`,
`german`). An English sentence always has the same German translation, so a model can get everything right.

    >>> from heedful import demo
    >>> pair = demo.generate(1)[0]
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from heedful.demo import english, german
from heedful.demo.sentence_grammar import Writer, write_sentence
from heedful.demo.structure import Sentence, align, words
from heedful.demo.structure import write as _text

__all__ = ["Pair", "Splits", "generate", "splits", "words", "write"]

LONGEST = 18  # English words and marks
TRAIN, VALID, TEST = 20000, 500, 500


@dataclass(frozen=True)
class Pair:
    """A sentence in both languages; `alignment` pairs positions in `words(source)` and `words(target)`."""

    source: str
    target: str
    alignment: frozenset[tuple[int, int]]


@dataclass(frozen=True)
class Splits:
    train: list[Pair]
    valid: list[Pair]
    test: list[Pair]


def render(sentence: Sentence) -> Pair:
    source, target = english.sentence(sentence), german.sentence(sentence)
    return Pair(_text(source), _text(target), align(source, target))


def _pairs(seed: int) -> Iterator[Pair]:
    """An endless stream of pairs with distinct sources."""
    writer, seen = Writer(random.Random(seed)), set[str]()
    while True:
        pair = render(write_sentence(writer))
        if pair.source not in seen and len(words(pair.source)) <= LONGEST:
            seen.add(pair.source)
            yield pair


def generate(count: int, seed: int = 0) -> list[Pair]:
    """`count` pairs with distinct sources; the same seed gives the same pairs everywhere."""
    stream = _pairs(seed)
    return [next(stream) for _ in range(count)]


def splits(seed: int = 0, train: int = TRAIN, valid: int = VALID, test: int = TEST) -> Splits:
    """Three parts that share no source sentence."""
    pairs = generate(test + valid + train, seed)
    return Splits(pairs[test + valid :], pairs[test : test + valid], pairs[:test])


def write(folder: Path, seed: int = 0, *, train: int = TRAIN, valid: int = VALID, test: int = TEST) -> Splits:
    """Write train, valid and test as .en and .de files, a sentence a line -> the same."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = splits(seed, train, valid, test)
    for name, pairs in (("train", parts.train), ("valid", parts.valid), ("test", parts.test)):
        for suffix, lines in (("en", [pair.source for pair in pairs]), ("de", [pair.target for pair in pairs])):
            (folder / f"{name}.{suffix}").write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    return parts
