"""Dependency trees from CoNLL-U files: the words of each sentence and the head of each word.

A token of several words (lines 3-4) counts as its first word, as it is written; empty nodes (line 5.1) are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from heedful.errors import DataError
from heedful.formats.line_files import read_lines

ROOT = -1
IDENTIFIER = re.compile(r"(\d+)(?:-(\d+)|\.\d+)?")


@dataclass(frozen=True)
class DependencyTree:
    """The words of a sentence, and for each the index of its head, or ROOT."""

    words: tuple[str, ...]
    heads: tuple[int, ...]


def read_trees(path: Path) -> Iterator[DependencyTree]:
    """The trees of a CoNLL-U file, plain or gzipped."""
    rows: list[list[str]] = []
    number = 0
    for number, line in enumerate(read_lines(path), 1):
        if line.startswith("#"):
            continue
        columns = line.split("\t")
        if line.strip() and len(columns) != 10:
            raise DataError(f"line {number} of {path} has {len(columns)} columns; a line of CoNLL-U has 10.")
        if line.strip():
            rows.append(columns)
        elif rows:
            yield _tree(rows, path, number)
            rows = []
    if rows:
        yield _tree(rows, path, number)


def _tree(rows: list[list[str]], path: Path, number: int) -> DependencyTree:
    words: list[str] = []
    parents: list[str] = []
    place_of = {"0": ROOT}  # the word that an identifier belongs to
    covered = 0  # identifiers up to here are part of a token of several words
    for identifier, form, *rest in rows:
        match = IDENTIFIER.fullmatch(identifier)
        if match is None:
            raise DataError(f"{path} has {identifier[:20]!r} as a number of a word, before line {number}.")
        first, last = match.groups()
        if "." in identifier:
            continue
        if last is not None:
            covered = int(last)
            place_of |= {str(word_id): len(words) for word_id in range(int(first), covered + 1)}
            words.append(form)
            parents.append("")  # known from its first word
        elif int(first) <= covered:
            parents[place_of[first]] = parents[place_of[first]] or rest[4]
        else:
            place_of[first] = len(words)
            words.append(form)
            parents.append(rest[4])
    heads = [place_of.get(parent) for parent in parents]
    if None in heads:
        raise DataError(f"{path} has a head that is not a word of its sentence, before line {number}.")
    inside = [ROOT if head == place else head for place, head in enumerate(heads) if head is not None]
    return DependencyTree(tuple(words), tuple(inside))
