"""bAbI stories (Weston et al., 2015) as labeled lines: answer TAB story TAB question.

A file is read as it is: numbered lines, of which a question has a TAB, its answer, and the numbers of the sentences
that support it. Number 1 begins a new story. A question is asked about all sentences of its story before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from heedful.formats.line_files import BadLine

NUMBERED = re.compile(r"(\d+) (\S.*)")


def labeled_lines(lines: Iterable[str | BadLine]) -> Iterator[str | BadLine]:
    """Lines of label TAB text [TAB second text]; a bAbI file, told by its first line, is converted to them."""
    lines = iter(lines)
    first = next(lines, None)
    if first is None:
        return
    if isinstance(first, str) and "\t" not in first and first.startswith("1 "):
        yield from _convert(_chain(first, lines))
    else:
        yield from _chain(first, lines)


def _chain(first: str | BadLine, rest: Iterator[str | BadLine]) -> Iterator[str | BadLine]:
    yield first
    yield from rest


def _convert(lines: Iterator[str | BadLine]) -> Iterator[str | BadLine]:
    story: list[str] = []
    for place, line in enumerate(lines, 1):
        if isinstance(line, BadLine) or not line.strip():
            yield line
            continue
        text, *rest = line.split("\t")
        numbered = NUMBERED.fullmatch(text.strip())
        if numbered is None or (rest and not rest[0].strip()):
            why = "is no line of a bAbI story: a number, a space and a sentence, or a question TAB answer TAB numbers."
            yield BadLine("not a numbered line of a bAbI story", place, why)
            continue
        number, sentence = numbered.groups()
        story = [] if number == "1" else story
        if not rest:
            story.append(sentence.strip())
        elif story:
            yield f"{rest[0].strip()}\t{' '.join(story)}\t{sentence.strip()}"
