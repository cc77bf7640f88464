"""Dependency trees from CoNLL-U files: the words of each sentence and the head of each word.

A token of several words (lines 3-4) is one word, as it is written, and has the head of its word nearest to the root;
empty nodes (line 5.1) are skipped.
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
    forms: list[str] = []
    members: list[list[int]] = []  # of each form: the ids of its words
    head_of: dict[int, int] = {}
    covered = 0  # ids up to here belong to the last token of several words
    for identifier, form, *rest in rows:
        match = IDENTIFIER.fullmatch(identifier)
        if match is None:
            raise DataError(f"{path} has {identifier[:20]!r} as a number of a word, before line {number}.")
        first, last = match.groups()
        if "." in identifier:
            continue
        if last is not None or int(first) > covered:
            forms.append(form)
            members.append([])
        if last is not None:
            covered = int(last)
        else:
            members[-1].append(int(first))
            head_of[int(first)] = int(rest[4]) if rest[4].isdecimal() else -1
    depth_of = {word: _depth(word, head_of) for word in head_of}
    if not all(members) or any(depth is None for depth in depth_of.values()):
        raise DataError(
            f"{path} has a head that is not a word of its sentence, or heads in a circle, before line {number}."
        )
    place_of = {word: place for place, words in enumerate(members) for word in words} | {0: ROOT}
    nearest = (min(words, key=lambda word: depth_of[word] or 0) for words in members)
    return DependencyTree(tuple(forms), tuple(place_of[head_of[word]] for word in nearest))


def _depth(word: int, head_of: dict[int, int]) -> int | None:
    """The number of arcs from the root; None if the heads lead elsewhere, or round and round."""
    for depth in range(len(head_of)):
        if (word := head_of[word]) == 0:
            return depth
        if word not in head_of:
            return None
    return None
