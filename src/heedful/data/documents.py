"""Files -> documents, in parts of bounded size.

A document ends at a blank line or at the end of a file (data.documents); its lines are joined by line feeds. Knows no
tokens, and holds one part of a document in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.errors import DataError, SettingError
from heedful.formats.line_files import BadLine, DroppedLines, read_good_and_bad_lines

PART_CHARACTERS = 1 << 20  # maximum characters in memory at a time
MAX_HELD_OUT = 1 << 20  # maximum bytes of a held-out validation set
MIN_DOCUMENTS = 20  # with fewer, the end of the longest document is held out


class DocumentPart(NamedTuple):
    """Consecutive lines of a document; `last` if it ends the document."""

    document: int
    text: str
    last: bool


@dataclass(frozen=True)
class Documents:
    """The documents of some files; can be read more than once."""

    files: tuple[Path, ...]
    ends: str  # blank-lines or files
    strict: bool = False  # whether a line that cannot be read is an error; otherwise it is dropped

    def __str__(self) -> str:
        first = str(self.files[0])
        return first if len(self.files) == 1 else f"{first} and {len(self.files) - 1} more"

    def parts(self, dropped: DroppedLines | None = None) -> Iterator[DocumentPart]:
        """All parts in order; each but the last of a document ends in a line feed. `dropped` counts dropped lines."""
        number = 0
        for file, path in enumerate(self.files):
            lines: list[str] = []
            size, begun = 0, False
            for line in read_good_and_bad_lines(path):
                if isinstance(line, BadLine):
                    if self.strict:
                        raise line.error(path)
                    if dropped is not None:
                        dropped.add(line, file)
                    continue
                if self.ends == "blank-lines" and not line.strip():
                    if begun:
                        yield DocumentPart(number, "\n".join(lines), last=True)
                        number += 1
                    lines, size, begun = [], 0, False
                    continue
                if size > PART_CHARACTERS:
                    yield DocumentPart(number, "\n".join(lines) + "\n", last=False)
                    lines, size = [], 0
                lines.append(line)
                size, begun = size + len(line) + 1, True
            if begun:
                yield DocumentPart(number, "\n".join(lines), last=True)
                number += 1


@dataclass(frozen=True)
class HeldOut:
    """Which documents are held out for validation; or, if there are too few, the end of the longest one."""

    documents: frozenset[int] = frozenset()
    tail: tuple[int, int] | None = None  # a document, and its bytes that stay in the training set

    def divide(self, parts: Iterator[DocumentPart]) -> Iterator[tuple[DocumentPart, bool]]:
        """Each part, and whether it is held out; a held-out tail begins at the start of a line."""
        before = 0
        for part in parts:
            if self.tail is None or part.document != self.tail[0]:
                yield part, part.document in self.documents
                continue
            train, valid = _cut(part.text, self.tail[1] - before)
            before += len(part.text.encode())
            if train:
                yield DocumentPart(part.document, train, last=bool(valid) or part.last), False
            if valid:
                yield DocumentPart(part.document, valid, part.last), True


def hold_out_documents(sizes: NDArray[np.int64], valid_size: int | None, seed: int) -> HeldOut:
    """Draw `valid_size` documents at random; by default a tenth of the text, at most a megabyte, in whole documents."""
    count = len(sizes)
    order = np.random.default_rng(seed).permutation(count)
    if valid_size is not None:
        if valid_size >= count:
            raise SettingError(
                f"data.valid_size is {valid_size}, but the text has only {count} documents; hold out fewer."
            )
        return HeldOut(frozenset(order[:valid_size].tolist()))
    target_size = min(int(sizes.sum()) // 10, MAX_HELD_OUT)
    held, chosen = 0, []
    for document in order.tolist():
        if held < target_size and held + sizes[document] <= 1.5 * target_size:
            held += int(sizes[document])
            chosen.append(document)
    if count >= MIN_DOCUMENTS and held >= target_size // 2:
        return HeldOut(frozenset(chosen))
    longest = int(sizes.argmax())
    size = int(sizes[longest])
    if size < 20:
        raise DataError("the text is too short to hold out a part for validation; give more, or data.valid_text.")
    return HeldOut(tail=(longest, max(1, size - min(target_size, size // 2))))


def _cut(text: str, at: int) -> tuple[str, str]:
    """The text before and after byte `at`, moved to the next line end, or to the next character if none is near."""
    data = text.encode()
    if at <= 0:
        return "", text
    if at >= len(data):
        return text, ""
    end = data.find(b"\n", at)
    if end < 0 or 2 * (len(data) - end - 1) < len(data) - at:
        end = at - 1
        while end + 1 < len(data) and data[end + 1] & 0xC0 == 0x80:
            end += 1
    return data[: end + 1].decode(), data[end + 1 :].decode()
