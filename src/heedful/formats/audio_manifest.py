"""Lists of recordings with their transcripts: a TSV file, path TAB text, with paths relative to the file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from heedful.errors import DataError
from heedful.formats.line_files import BadLine, DroppedLines, read_tsv

NO_TEXT, NO_FILE = "no path or no text", "a recording that does not exist"


@dataclass(frozen=True)
class Utterance:
    """A recording, named as in the manifest, and what is said in it; `line` counts the lines of the manifest from 1."""

    path: Path
    text: str
    line: int
    name: str


@dataclass(frozen=True)
class AudioManifest:
    """A TSV file of recordings; lines that cannot be used are dropped, or are errors if `strict`."""

    path: Path
    strict: bool = False

    @cached_property
    def files(self) -> list[Path]:
        """The manifest and all recordings that exist: everything that a corpus depends on."""
        return [
            self.path,
            *(utterance.path for utterance in self.utterances(DroppedLines()) if utterance.path.is_file()),
        ]

    def __str__(self) -> str:
        return str(self.path)

    def utterances(self, dropped: DroppedLines | None = None) -> Iterator[Utterance]:
        """All recordings in order; `dropped` counts lines that cannot be read, which are errors without it."""
        lines = read_tsv(self.path, dropped=dropped, columns="path TAB text")
        for number, columns in enumerate(lines, 1):
            name, text = (column.strip() for column in columns)
            if name and text:
                yield Utterance(self.path.parent / name, text, number, name)
            elif name or text:
                bad = BadLine(NO_TEXT, number, "has no path or no text; every line must be path TAB text.")
                if dropped is None:
                    raise bad.error(self.path)
                dropped.add(bad)


def read_manifest(path: Path) -> list[Utterance]:
    """All recordings of a file, for evaluation; a line that cannot be read is an error."""
    utterances = list(AudioManifest(path).utterances())
    if not utterances:
        raise DataError(f"{path} lists no recordings; each line is path TAB text.")
    return utterances
