"""Files of sentence pairs -> pairs: translation memories, localization files, tables and line-aligned files.

`--pairs` names files and folders; each file is read by its content and extension. A segment that cannot be used becomes
an empty pair and is counted with its reason, so that numbers of pairs stay the same in every pass.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from heedful.config import DataSettings
from heedful.errors import DataError, SettingError
from heedful.formats.format_names import packed_stem
from heedful.formats.language_tags import WantedLanguages, match_rank
from heedful.formats.line_files import BadLine, DroppedLines, FileCounts, ParallelFiles, open_bytes
from heedful.formats.pair_formats import MosesPairs, PairFormat, TsvPairs, find_format, open_format
from heedful.formats.segment import Segment, TaggedText, separate_words
from heedful.formats.xml_parser import XmlError

UNDECODABLE = "characters that cannot be decoded (U+FFFD)"
BROKEN = "the rest of the file, which is not well-formed XML"


class PairCorpus(Protocol):
    """The files of a parallel corpus; `str` names them."""

    @property
    def files(self) -> Sequence[Path]: ...

    def pairs(
        self, notes: Counter[str] | None = None, dropped: DroppedLines | None = None
    ) -> Iterator[tuple[str, str]]:
        """All pairs in order; `notes` counts lines with extra columns, `dropped` pairs that cannot be used."""


@dataclass(frozen=True)
class PairFiles:
    """Files of any format; what cannot be used becomes an empty pair, or an error if `strict`."""

    formats: tuple[PairFormat, ...]
    skipped: tuple[str, ...] = field(default=(), compare=False)  # files of folders that are not read, with reasons
    strict: bool = False

    @property
    def files(self) -> list[Path]:
        return [path for pair_format in self.formats for path in pair_format.files]

    def __str__(self) -> str:
        names = [str(pair_format) for pair_format in self.formats]
        return ", ".join(names) if len(names) <= 3 else f"{len(names)} files ({names[0]}, {names[1]}, …)"

    def pairs(
        self, notes: Counter[str] | None = None, dropped: DroppedLines | None = None
    ) -> Iterator[tuple[str, str]]:
        if dropped is not None:
            dropped.skipped = list(self.skipped)
        first_file = 0
        for pair_format in self.formats:
            counts = FileCounts(str(pair_format), pair_format.description)
            if dropped is not None:
                dropped.by_file.append(counts)
            for segment in self._segments(pair_format):
                counts.read += 1
                problem = _problem(segment)
                if problem:
                    bad = BadLine(problem, segment.line, f"cannot be used: {problem}.", _shorten(segment.source.text))
                    if self.strict and (segment.defect or problem == UNDECODABLE):
                        raise bad.error(pair_format)
                    counts.dropped[problem] = counts.dropped.get(problem, 0) + 1
                    if dropped is not None:
                        dropped.add(bad, first_file)
                    yield "", ""
                elif segment.target is not None:
                    yield _plain(separate_words(segment.source).text), _plain(separate_words(segment.target).text)
            first_file += len(pair_format.files)

    def _segments(self, pair_format: PairFormat) -> Iterator[Segment]:
        try:
            yield from pair_format.segments()
        except XmlError as error:
            if self.strict:
                raise
            yield Segment(TaggedText(), None, error.line, f"{BROKEN} ({error.why})")


def _problem(segment: Segment) -> str:
    if segment.problem or segment.target is None:
        return segment.problem or "no translation"
    texts = segment.source.text, segment.target.text
    return UNDECODABLE if any("\ufffd" in text for text in texts) else ""


def _shorten(text: str) -> str:
    """A text of at most 60 characters, for a report."""
    text = _plain(text)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _plain(text: str) -> str:
    """The text in one line."""
    return " ".join(text.split())


def open_pairs_of(paths: Sequence[Path], languages: WantedLanguages, strict: bool) -> PairCorpus:
    """The pairs of files and folders; one TSV file is read as it always was."""
    formats: list[PairFormat] = []
    skipped: list[str] = []
    for path in paths:
        if path.is_dir():
            folder_formats, rest = _open_folder(path, languages)
            formats += folder_formats
            skipped += rest
        elif not path.exists() and (sides := _moses_sides(path, languages)):
            formats.append(MosesPairs(sides[0], languages, sides[1]))
        elif not path.exists():
            formats.append(TsvPairs(path, languages))  # which says so when it is read
        else:
            formats.append(open_format(path, languages))
    if len(formats) == 1 and not skipped and isinstance(formats[0], TsvPairs):
        return ParallelFiles(formats[0].path, strict=strict)
    return PairFiles(tuple(formats), tuple(skipped), strict)


def _open_folder(folder: Path, languages: WantedLanguages) -> tuple[list[PairFormat], list[str]]:
    """The files of a folder that hold pairs, in order of their names, and the others with reasons."""
    formats: list[PairFormat] = []
    skipped: list[str] = []
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith(".")]
    aligned = _find_moses(files, languages)
    for path in files:
        if path in aligned:
            if (target := aligned[path]) is not None:
                formats.append(MosesPairs(path, languages, target))
            continue
        try:
            if find_format(path) in ("", "xml"):
                skipped.append(f"{path}: not a format of pairs")
            else:
                formats.append(open_format(path, languages))
        except DataError as error:
            skipped.append(f"{path}: {error}")
    if not formats:
        why = f" ({skipped[0].rstrip('.')})" if skipped else ""
        raise DataError(f"the folder {folder} holds no file of pairs that can be read{why}; give another.")
    return formats, skipped


def _find_moses(files: Sequence[Path], languages: WantedLanguages) -> dict[Path, Path | None]:
    """Line-aligned files of a folder: source file -> target file, and each target file -> None."""
    by_stem: dict[Path, list[Path]] = {}
    for path in files:
        plain = packed_stem(path)
        if re.fullmatch(r"\.[a-z]{2,3}([-_][A-Za-z]{2,4})?", plain.suffix) and plain.suffix != ".po":
            by_stem.setdefault(plain.with_suffix(""), []).append(path)
    aligned: dict[Path, Path | None] = {}
    for sides in by_stem.values():
        source = [path for path in sides if _is_language(path, languages.source)]
        target = [path for path in sides if _is_language(path, languages.target)]
        if len(source) == len(target) == 1 and source != target:
            aligned |= {source[0]: target[0], target[0]: None}
    return aligned


def _is_language(path: Path, wanted: str | None) -> bool:
    return wanted is not None and match_rank(wanted, packed_stem(path).suffix[1:]) is not None


def _moses_sides(prefix: Path, languages: WantedLanguages) -> tuple[Path, Path] | None:
    """`data/train` -> data/train.en and data/train.de, if both are there."""
    if not prefix.parent.is_dir():
        return None
    files = [path for path in sorted(prefix.parent.glob(f"{prefix.name}.*")) if path.is_file()]
    aligned = {path: target for path, target in _find_moses(files, languages).items() if target is not None}
    return next(iter(aligned.items()), None)


def training_corpus(data: DataSettings) -> PairCorpus:
    """The training files that the settings name."""
    corpus = _choose_files(data.source, data.target, data.pairs, data, "")
    if corpus is None:
        raise SettingError(
            "no corpus is given; give two line-aligned files (source and target), or files of pairs (pairs);"
            " in a file of settings they are called data.source, data.target and data.pairs."
        )
    return corpus


def validation_corpus(data: DataSettings) -> PairCorpus | None:
    """The validation files that the settings name, if any."""
    return _choose_files(data.valid_source, data.valid_target, data.valid_pairs, data, "valid_")


def _choose_files(
    source: Path | None, target: Path | None, pairs: Sequence[Path], data: DataSettings, prefix: str
) -> PairCorpus | None:
    if pairs:
        if source is not None or target is not None:
            other = "source" if source is not None else "target"
            raise SettingError(
                f"{prefix}pairs ({pairs[0]}) and {prefix}{other} ({source or target}) are both given;"
                " keep the files of pairs or the two line-aligned files."
            )
        return _pairs_of(data, pairs)
    if source is not None and target is not None:
        return ParallelFiles(source, target, data.strict)
    if source is None and target is None:
        return None
    present, missing = ("source", "target") if target is None else ("target", "source")
    raise SettingError(
        f"{prefix}{present} ({source or target}) is given without {prefix}{missing}; give both, or files of pairs"
        f" ({prefix}pairs)."
    )


def check_files(data: DataSettings) -> None:
    """Raise an error if a file that the settings name is missing or cannot be opened."""
    for name in type(data).model_fields:
        value = getattr(data, name)
        for path in value if isinstance(value, tuple) else [value]:
            if isinstance(path, Path) and name not in ("cache_dir", "pairs", "valid_pairs"):
                with open_bytes(path):
                    pass
    for corpus in (_pairs_of(data, data.pairs), _pairs_of(data, data.valid_pairs)):
        for path in corpus.files if corpus else []:
            with open_bytes(path):
                pass


def _pairs_of(data: DataSettings, paths: Sequence[Path]) -> PairCorpus | None:
    languages = WantedLanguages(data.source_language, data.target_language)
    return open_pairs_of(paths, languages, data.strict) if paths else None
