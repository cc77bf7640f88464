"""Files -> lines -> pairs of lines, exactly as they are written.

The first step of a corpus. Knows encodings, compression and columns; does not judge whether a pair is any good.
"""

from __future__ import annotations

import bz2
import gzip
import itertools
import lzma
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, cast

from heedful.errors import DataError

UNPACK: dict[bytes, Callable[[BinaryIO], object]] = {
    b"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\0": lzma.LZMAFile,
}  # by magic number
BOM = b"\xef\xbb\xbf"
EXTRA_COLUMNS = "extra columns"


NOT_UTF8, NUL, NO_TAB = "not UTF-8", "a NUL character, as in binary or UTF-16 files", "no TAB"


@dataclass(frozen=True)
class BadLine:
    """A line that cannot be read or parsed."""

    reason: str
    number: int
    message: str  # continues 'line 3 of a.txt'
    example: str = ""  # its text, if it can be shown

    def error(self, name: object) -> DataError:
        return DataError(f"line {self.number} of {name} {self.message}")


@dataclass(frozen=True)
class Dropped:
    """How many lines were dropped for one reason, and where the first one is."""

    count: int
    file: int  # index of the file in the corpus
    line: int
    example: str = ""


@dataclass
class FileCounts:
    """What was read from one file of a corpus."""

    name: str
    format: str
    read: int = 0
    dropped: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.dropped.items())
        return f"{self.name} ({self.format}): {self.read:,} read" + (f", dropped: {reasons}" if reasons else "")


class DroppedLines(dict[str, Dropped]):
    """Dropped lines of a corpus, by reason; and of a corpus of several formats what was read, file by file."""

    def __init__(self, items: Iterable[tuple[str, Dropped]] = ()) -> None:
        super().__init__(items)
        self.by_file: list[FileCounts] = []
        self.skipped: list[str] = []  # files of a folder that are not read, with the reason

    def add(self, line: BadLine, file: int = 0) -> None:
        first = self.get(line.reason, Dropped(0, file, line.number, line.example))
        self[line.reason] = replace(first, count=first.count + 1)

    def counts(self) -> dict[str, int]:
        return {reason: dropped.count for reason, dropped in self.items()}

    @property
    def total(self) -> int:
        return sum(self.counts().values())

    def first(self, noun: str = "line") -> str:
        """As ' that can be used (line 2: a word without a tag)', for a file of which nothing is left; else empty."""
        return next((f" that can be used ({noun} {dropped.line}: {why})" for why, dropped in self.items()), "")


@dataclass(frozen=True)
class ParallelFiles:
    """Two line-aligned files, or one TSV file (then `target` is None).

    A line that cannot be read becomes an empty pair, or an error if `strict`.
    """

    source: Path
    target: Path | None = None
    strict: bool = False

    @property
    def files(self) -> list[Path]:
        return [self.source] if self.target is None else [self.source, self.target]

    def __str__(self) -> str:
        return " and ".join(map(str, self.files))

    def pairs(
        self, notes: Counter[str] | None = None, dropped: DroppedLines | None = None
    ) -> Iterator[tuple[str, str]]:
        """All pairs in order; `notes` counts lines with extra columns, `dropped` lines that cannot be read."""
        counted = None if self.strict else DroppedLines() if dropped is None else dropped
        if self.target is None:
            return read_tsv(self.source, notes, counted)
        return read_pairs(self.source, self.target, counted)


def read_lines(path: Path) -> Iterator[str]:
    """Lines of UTF-8 text, plain or gzipped; a line ends at a line feed and at no other character."""
    with open_unpacked(path) as file:
        yield from decode_lines(file, str(path))


def count_lines(path: Path) -> int:
    """Lines of a file, plain or gzipped."""
    with open_unpacked(path) as file:
        blocks = iter(partial(file.read, 1 << 20), b"")
        return sum(block.count(b"\n") for block in blocks) + 1


def read_good_and_bad_lines(path: Path) -> Iterator[str | BadLine]:
    """Like `read_lines`, with a `BadLine` in place of each line that cannot be read."""
    with open_unpacked(path) as file:
        yield from decode_good_and_bad(file)


def decode_lines(file: Iterable[bytes], name: str) -> Iterator[str]:
    """The lines of an open file; `name` is for error messages."""
    for line in decode_good_and_bad(file):
        if isinstance(line, BadLine):
            raise line.error(name)
        yield line


def decode_good_and_bad(file: Iterable[bytes]) -> Iterator[str | BadLine]:
    for number, raw in enumerate(file, 1):
        if number == 1 and raw == BOM:
            return  # a byte order mark without text
        line = raw.removesuffix(b"\n").removesuffix(b"\r")
        if number == 1:
            line = line.removeprefix(BOM)
        if b"\0" in line:
            why = "holds a NUL character, so it is probably a binary or UTF-16 file; convert it to UTF-8 text."
            yield BadLine(NUL, number, why)
            continue
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError as error:
            where = f"byte 0x{line[error.start]:02x} at position {error.start + 1}"
            yield BadLine(NOT_UTF8, number, f"is not UTF-8 ({where}); save the file as UTF-8, or remove that line.")


def read_pairs(source: Path, target: Path, dropped: DroppedLines | None = None) -> Iterator[tuple[str, str]]:
    """Line n of one file with line n of the other.

    If one of them cannot be read, the pair is empty and counted in `dropped`; without `dropped` it is an error.
    """
    left, right = read_good_and_bad_lines(source), read_good_and_bad_lines(target)
    for count in itertools.count():
        a, b = next(left, None), next(right, None)
        if a is not None and b is not None:
            if isinstance(a, BadLine):
                yield _empty_pair(a, source, dropped, 0)
            elif isinstance(b, BadLine):
                yield _empty_pair(b, target, dropped, 1)
            else:
                yield a, b
            continue
        if a is b:
            return
        lines = count + 1 + sum(1 for _ in (left if b is None else right))
        source_lines, target_lines = (lines, count) if b is None else (count, lines)
        raise DataError(
            f"{source} has {source_lines} lines but {target} has {target_lines}; line n of one must"
            " belong to line n of the other."
        )


def read_tsv(
    path: Path,
    notes: Counter[str] | None = None,
    dropped: DroppedLines | None = None,
    columns: str = "source TAB target",
) -> Iterator[tuple[str, str]]:
    """The first two columns of every line; `notes` counts lines with more columns, `dropped` lines with fewer.

    `columns` names them in the message of an error.
    """
    for number, line in enumerate(read_good_and_bad_lines(path), 1):
        if isinstance(line, BadLine):
            yield _empty_pair(line, path, dropped)
            continue
        source, tab, rest = line.partition("\t")
        if not tab:
            bad = BadLine(NO_TAB, number, f"has no TAB; every line must be {columns}.")
            yield _empty_pair(bad, path, dropped)
            continue
        target, more, _ = rest.partition("\t")
        if more and notes is not None:
            notes[EXTRA_COLUMNS] += 1
        yield source, target


def _empty_pair(line: BadLine, path: Path, dropped: DroppedLines | None, file: int = 0) -> tuple[str, str]:
    """The pair in place of a line that cannot be read."""
    if dropped is None:
        raise line.error(path)
    dropped.add(line, file)
    return "", ""


@contextmanager
def open_bytes(path: Path) -> Iterator[BufferedReader]:
    """Open a file that can be read more than once: not a pipe, not a device."""
    with _explain_errors(path):
        if not path.is_file() and path.exists() and not path.is_dir():
            raise DataError(f"{path} is a pipe or device, but a corpus is read several times; write it to a file.")
        with path.open("rb") as file:
            yield file


@contextmanager
def open_unpacked(path: Path) -> Iterator[BinaryIO]:
    """The content of a file, unpacked if it starts with the magic number of gzip, bzip2 or xz, whatever its name."""
    with _explain_errors(path), path.open("rb") as file:
        magic = file.peek(8)
        unpack = next((unpack for number, unpack in UNPACK.items() if magic.startswith(number)), None)
        yield file if unpack is None else cast(BinaryIO, unpack(file))


@contextmanager
def _explain_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; check the path.") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder; give a text file.") from None
    except EOFError:
        raise DataError(f"{path} ends in the middle of its compressed data; copy or download it again.") from None
    except (gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"{path} is damaged compressed data ({error}); copy or download it again.") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from None
