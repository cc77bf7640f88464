"""Dependency trees of words -> trees of tokens, for models with syntax positions.

A `Parser` gives the tree of a sentence: a `TreeBank` looks it up in CoNLL-U files, and any other object with the same
method computes it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from heedful.errors import DataError
from heedful.formats.conllu import ROOT, DependencyTree, read_trees
from heedful.text import Tokenizer

BYTE = re.compile(r"<0x[0-9A-F]{2}>")  # a piece that is one byte of a character


class Parser(Protocol):
    """Whatever knows the dependency tree of a sentence."""

    def parse(self, sentence: str) -> DependencyTree | None:
        """The tree of a sentence, whose words are its parts in order; None if it has none."""


class TreeBank:
    """Sentences with known trees, found by their words; spaces do not matter."""

    def __init__(self, paths: Sequence[Path], tokenizer: Tokenizer) -> None:
        self.paths, self.trees = paths, dict[str, DependencyTree]()
        for path in paths:
            for tree in read_trees(path):
                words = tuple(tokenizer.normalize(word) for word in tree.words)
                self.trees[_key("".join(words))] = DependencyTree(words, tree.heads)

    def __str__(self) -> str:
        return ", ".join(map(str, self.paths))

    def parse(self, sentence: str) -> DependencyTree | None:
        return self.trees.get(_key(sentence))


class TokenTrees:
    """Source ids -> the trees of their tokens, as `model.syntax_positions` reads them."""

    def __init__(self, parser: Parser, tokenizer: Tokenizer) -> None:
        self.parser, self.tokenizer = parser, tokenizer
        self.special = {tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id}
        self.found = self.missing = 0  # sentences with and without a tree

    def __call__(self, source: Tensor) -> Tensor:
        """(B, S) -> (B, S, 2): for each token the first tokens of its word and of the head of its word."""
        rows = [self.row(ids) for ids in source.tolist()]
        return torch.tensor(rows, device=source.device).view(*source.shape, 2)

    def describe(self) -> str:
        """The share of sentences so far that have a tree; an error if none has one."""
        if self.missing and not self.found:
            raise DataError(
                f"no sentence has a dependency tree in {self.parser}; a tree is found by the words of its sentence, so"
                " give the CoNLL-U files of this text."
            )
        return f"{100 * self.found / max(1, self.found + self.missing):.1f} % of the sentences have a dependency tree"

    def row(self, ids: list[int]) -> list[tuple[int, int]]:
        """One sentence; a token that belongs to no word, and all tokens of a sentence without a tree, are roots."""
        alone = [(place, place) for place in range(len(ids))]
        places = [place for place, token in enumerate(ids) if token not in self.special]
        tree = self.parser.parse(self.tokenizer.decode([ids[place] for place in places]))
        self.found, self.missing = self.found + (tree is not None), self.missing + (tree is None)
        if tree is None:
            return alone
        words = self._words([ids[place] for place in places], tree)
        first: dict[int, int] = {}
        for place, word in zip(places, words, strict=True):
            first.setdefault(word, place)
        for place, word in zip(places, words, strict=True):
            head = tree.heads[word]
            alone[place] = first[word], first[word] if head == ROOT else first.get(head, first[word])
        return alone

    def _words(self, ids: list[int], tree: DependencyTree) -> list[int]:
        """The word of each token, by counting bytes: a token belongs to the word that its first byte is in."""
        ends, total = [], 0
        for word in tree.words:
            total += len("".join(word.split()).encode())
            ends.append(total)
        words, read, current = [], 0, 0
        for piece in self.tokenizer.pieces(ids):
            while current + 1 < len(ends) and read >= ends[current]:
                current += 1
            words.append(current)
            read += 1 if BYTE.fullmatch(piece) else len("".join(piece.replace("▁", " ").split()).encode())
        return words


def _key(text: str) -> str:
    return "".join(text.split())
