"""CoNLL files -> tagged sentences: a word and its tag on each line, a blank line after each sentence.

The word is the first column and the tag the last one. In CoNLL-U (ten columns) the word is the second column and the
tag the universal part of speech. Knows neither vocabularies nor ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from heedful.errors import DataError, quote
from heedful.formats.line_files import BadLine, DroppedLines, read_good_and_bad_lines

DOCUMENT_START = "-DOCSTART-"
CONLL_U_COLUMNS = 10
CONLL_U_ID = re.compile(r"\d+(?P<extra>[-.]\d+)?")  # 3; 3-4 spans several words; 3.1 is a word that was left out


@dataclass(frozen=True)
class TaggedSentence:
    """Words, and the tag of each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


def read_conll(path: Path, dropped: DroppedLines | None = None) -> list[TaggedSentence]:
    """All sentences; one with a line that cannot be read is counted in `dropped`, or is an error without it."""
    sentences = []
    rows: list[tuple[str, str]] = []
    damaged = False
    for line in _lines(path):
        if isinstance(line, BadLine):
            if dropped is None:
                raise line.error(path)
            dropped.add(line)
            damaged = True
        elif line is not None:
            rows.append(line)
        else:
            if rows and not damaged:
                words, tags = zip(*rows, strict=True)
                sentences.append(TaggedSentence(words, tags))
            rows, damaged = [], False
    if not sentences:
        why = dropped.first() if dropped else ""
        raise DataError(
            f"{path} holds no tagged sentences{why}; each line is a word and its tag, a blank line ends a sentence."
        )
    return sentences


def _lines(path: Path) -> Iterator[tuple[str, str] | BadLine | None]:
    """Word and tag of each line; None at the end of a sentence. All lines have as many columns as the first one."""
    expected = 0
    for number, line in enumerate(read_good_and_bad_lines(path), 1):
        if isinstance(line, BadLine):
            yield line
            continue
        columns = line.split("\t") if "\t" in line else line.split()
        if not line.strip() or columns[0] == DOCUMENT_START:
            yield None
        elif len(columns) == CONLL_U_COLUMNS and (match := CONLL_U_ID.fullmatch(columns[0])):
            if not match["extra"]:
                yield columns[1], columns[3]
        elif line.startswith("# "):
            continue  # a comment of CoNLL-U
        elif len(columns) == 1:
            yield BadLine("a word without a tag", number, "has one column; each needs a word and its tag.")
        elif len(columns) != (expected := expected or len(columns)):
            why = f"has {len(columns)} columns, and earlier lines have {expected}; each needs a word and its tag."
            yield BadLine("another number of columns", number, why)
        elif len(columns[-1].split()) != 1:
            why = f"has the tag {quote(columns[-1])}; a tag is one word, and each line has a word and its tag."
            yield BadLine("a tag that is not one word", number, why)
        else:
            yield columns[0], columns[-1]
    yield None
