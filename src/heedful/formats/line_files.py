"""Files -> lines -> pairs of lines, exactly as they are written.

The first step of a corpus. Knows encodings, compression and columns; does not judge whether a pair is any good.
"""

from __future__ import annotations

import gzip
import itertools
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, cast

from heedful.config import DataSettings
from heedful.errors import DataError, SettingError

GZIP = b"\x1f\x8b"
BOM = b"\xef\xbb\xbf"
EXTRA_COLUMNS = "extra columns"


NOT_UTF8, NUL, NO_TAB = "not UTF-8", "a NUL character, as in binary or UTF-16 files", "no TAB"


@dataclass(frozen=True)
class BadLine:
    """A line that cannot be read or parsed."""

    reason: str
    number: int
    message: str  # continues 'line 3 of a.txt'

    def error(self, name: object) -> DataError:
        return DataError(f"line {self.number} of {name} {self.message}")


@dataclass(frozen=True)
class Dropped:
    """How many lines were dropped for one reason, and where the first one is."""

    count: int
    file: int  # index of the file in the corpus
    line: int


class DroppedLines(dict[str, Dropped]):
    """Dropped lines of a corpus, by reason."""

    def add(self, line: BadLine, file: int = 0) -> None:
        first = self.get(line.reason, Dropped(0, file, line.number))
        self[line.reason] = Dropped(first.count + 1, first.file, first.line)

    def counts(self) -> dict[str, int]:
        return {reason: dropped.count for reason, dropped in self.items()}

    @property
    def total(self) -> int:
        return sum(self.counts().values())


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


def training_corpus(data: DataSettings) -> ParallelFiles:
    """The training files that the settings name."""
    corpus = _choose_files(data.source, data.target, data.pairs, "", data.strict)
    if corpus is None:
        raise SettingError(
            "no corpus is given; give --source and --target, or --pairs for a TSV file (in a file of settings,"
            " data.source and data.target, or data.pairs)."
        )
    return corpus


def validation_corpus(data: DataSettings) -> ParallelFiles | None:
    """The validation files that the settings name, if any."""
    corpus = _choose_files(data.valid_source, data.valid_target, data.valid_pairs, "valid_", data.strict)
    if corpus is not None and data.valid_size is not None:
        raise SettingError(
            f"data.valid_size ({data.valid_size}) holds out a part of the corpus, but validation files"
            f" ({corpus}) are given as well; remove one of the two."
        )
    return corpus


def read_lines(path: Path) -> Iterator[str]:
    """Lines of UTF-8 text, plain or gzipped; a line ends at a line feed and at no other character."""
    with _open_unpacked(path) as file:
        yield from decode_lines(file, str(path))


def read_good_and_bad_lines(path: Path) -> Iterator[str | BadLine]:
    """Like `read_lines`, with a `BadLine` in place of each line that cannot be read."""
    with _open_unpacked(path) as file:
        yield from _decode(file)


def decode_lines(file: Iterable[bytes], name: str) -> Iterator[str]:
    """The lines of an open file; `name` is for error messages."""
    for line in _decode(file):
        if isinstance(line, BadLine):
            raise line.error(name)
        yield line


def _decode(file: Iterable[bytes]) -> Iterator[str | BadLine]:
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
            f"{source} has {source_lines} lines but {target} has {target_lines}; line n of one must be the"
            " translation of line n of the other."
        )


def read_tsv(
    path: Path, notes: Counter[str] | None = None, dropped: DroppedLines | None = None
) -> Iterator[tuple[str, str]]:
    """The first two columns of every line; `notes` counts lines with more columns, `dropped` lines with fewer."""
    for number, line in enumerate(read_good_and_bad_lines(path), 1):
        if isinstance(line, BadLine):
            yield _empty_pair(line, path, dropped)
            continue
        source, tab, rest = line.partition("\t")
        if not tab:
            bad = BadLine(NO_TAB, number, "has no TAB; every line must be source TAB target.")
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


def _choose_files(
    source: Path | None, target: Path | None, pairs: Path | None, prefix: str, strict: bool
) -> ParallelFiles | None:
    if pairs is not None:
        if source is not None or target is not None:
            other = "source" if source is not None else "target"
            raise SettingError(
                f"data.{prefix}pairs ({pairs}) and data.{prefix}{other} ({source or target}) are both given;"
                " keep the TSV file or the two line-aligned files."
            )
        return ParallelFiles(pairs, strict=strict)
    if source is not None and target is not None:
        return ParallelFiles(source, target, strict)
    if source is None and target is None:
        return None
    present, missing = ("source", "target") if target is None else ("target", "source")
    raise SettingError(
        f"data.{prefix}{present} ({source or target}) is given without data.{prefix}{missing}; set both,"
        f" or data.{prefix}pairs for a TSV file."
    )


@contextmanager
def open_bytes(path: Path) -> Iterator[BufferedReader]:
    """Open a file that can be read more than once: not a pipe, not a device."""
    with _explain_errors(path):
        if not path.is_file() and path.exists() and not path.is_dir():
            raise DataError(f"{path} is a pipe or device, but a corpus is read several times; write it to a file.")
        with path.open("rb") as file:
            yield file


def check_files(data: DataSettings) -> None:
    """Raise an error if a file that the settings name is missing or cannot be opened."""
    for value in (getattr(data, name) for name in type(data).model_fields if name != "cache_dir"):
        for path in value if isinstance(value, tuple) else [value]:
            if isinstance(path, Path):
                with open_bytes(path):
                    pass


@contextmanager
def _open_unpacked(path: Path) -> Iterator[BinaryIO]:
    """The content of a file, unpacked if it starts with the magic number of gzip, whatever its name."""
    with _explain_errors(path), path.open("rb") as file:
        packed = file.peek(len(GZIP)).startswith(GZIP)
        yield cast(BinaryIO, gzip.GzipFile(fileobj=file)) if packed else file


@contextmanager
def _explain_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; check the path.") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder; give a text file.") from None
    except EOFError:
        raise DataError(f"{path} ends in the middle of its gzip data; copy or download it again.") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is damaged gzip data ({error}); copy or download it again.") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from None
