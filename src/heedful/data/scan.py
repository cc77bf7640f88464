"""The first pass over a parallel corpus: a hash of each side, empty sides, unusual characters.

Duplicates and the validation set are then found by hashes alone, at 16 bytes per pair; no text stays in memory. A
64-bit collision occurs in about one of a few hundred thousand corpora of ten million pairs. Knows no tokens.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from heedful.config import DataSettings, RunConfig
from heedful.data.data_report import UnusualCharacter
from heedful.data.pair_filters import Judge
from heedful.errors import DataError, SettingError, quote
from heedful.formats.line_files import EXTRA_COLUMNS, DroppedLines
from heedful.formats.pair_files import PairCorpus

Hashes = NDArray[np.uint64]
Flags = NDArray[np.bool_]
T = TypeVar("T")

UNUSUAL = {
    "line separators inside a line (U+2028, U+2029, U+0085, \\v, \\f)": r"\u2028\u2029\x85\x0b\x0c",
    "control characters": r"\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\r",
    "replacement characters (U+FFFD, from an earlier decoding error)": r"\ufffd",
    "invisible characters (zero-width, direction marks)": r"\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff",
    "private-use characters": r"\ue000-\uf8ff\U000f0000-\U0010ffff",
}
ANY_UNUSUAL = re.compile(f"[{''.join(UNUSUAL.values())}]")
UNUSUAL_KINDS = [(name, re.compile(f"[{characters}]")) for name, characters in UNUSUAL.items()]


@dataclass
class Scan:
    """The result of one pass over a corpus."""

    source: Hashes
    target: Hashes
    empty: Flags
    identical: int = 0
    extra_columns: int = 0
    unusual: dict[str, UnusualCharacter] = field(default_factory=dict)
    dropped: DroppedLines = field(default_factory=DroppedLines)  # their pairs count as empty
    unwanted: Flags = field(default_factory=lambda: np.zeros(0, np.bool_))  # by filters
    filtered: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)  # the first pair that each filter dropped

    def __len__(self) -> int:
        return len(self.source)


def scan(
    source_normalize: Callable[[str], str],
    target_normalize: Callable[[str], str],
    corpus: PairCorpus,
    progress: Callable[[str], None],
    filters: Mapping[str, Judge] | None = None,
) -> Scan:
    """Read every pair once; texts with the same normalized form have the same hash."""
    unwanted, filtered = bytearray(), Counter[str]()
    hashes, empty, notes = (bytearray(), bytearray()), bytearray(), Counter[str]()
    unusual: dict[str, UnusualCharacter] = {}
    dropped = DroppedLines()
    identical, examples = 0, dict[str, str]()
    for number, (source, target) in enumerate(corpus.pairs(notes, dropped), 1):
        for side, text in (("source", source), ("target", target)):
            if (not text.isprintable() or "\ufffd" in text) and ANY_UNUSUAL.search(text):
                _count_unusual(unusual, text, side, number)
        a, b = source_normalize(source), target_normalize(target)
        hashes[0].extend(_hash(a))
        hashes[1].extend(_hash(b))
        empty.append(not a.strip() or not b.strip())
        name = next((name for name, judge in (filters or {}).items() if not empty[-1] and judge(source, target)), "")
        identical += a == b and not empty[-1] and not name
        unwanted.append(bool(name))
        if name:
            filtered[name] += 1
            examples.setdefault(name, f"pair {number:,}: {quote(source)} and {quote(target)}")
        if number % 500_000 == 0:
            progress(f"read {number:,} pairs")
    if not empty:
        raise DataError(f"no lines in {corpus}; give a corpus with at least a few pairs.")
    return Scan(
        np.frombuffer(hashes[0], np.uint64),
        np.frombuffer(hashes[1], np.uint64),
        np.frombuffer(empty, np.bool_),
        identical,
        notes[EXTRA_COLUMNS],
        unusual,
        dropped,
        np.frombuffer(unwanted, np.bool_),
        filtered,
        examples,
    )


def duplicates(scan: Scan) -> Flags:
    """Which pairs are copies of an earlier pair."""
    both = scan.source * np.uint64(0x9E3779B97F4A7C15) + scan.target  # overflow is intended
    first = np.unique(both, return_index=True)[1]
    repeated = np.ones(len(scan), np.bool_)
    repeated[first] = False
    return repeated


def hold_out_pairs(sources: Hashes, candidates: Flags, data: DataSettings, seed: int) -> Flags:
    """Which pairs are held out for validation: all that have one of the drawn source sentences."""
    unique = np.unique(sources[candidates])
    size = data.valid_size or _valid_size(len(unique))
    if size >= len(unique):
        if data.valid_size is None:
            noun, settings = _validation_files(data)
            raise DataError(
                f"the corpus has {len(unique)} different {noun}{'s' * (len(unique) != 1)}, too few to hold one out for"
                f" validation; give more, or files for validation ({settings})."
            )
        raise SettingError(
            f"data.valid_size is {size}, but the corpus has only {len(unique)} different sources; hold out fewer."
        )
    drawn = np.random.default_rng(seed).choice(unique, size, replace=False)
    return candidates & np.isin(sources, drawn)


def _validation_files(data: DataSettings) -> tuple[str, str]:
    """What one example of the corpus is called, and the settings that name files for validation."""
    if data.audio:
        return "recording", "data.valid_audio"
    if data.labeled:
        return "example", "data.valid_labeled"
    return "source", "data.valid_pairs, or data.valid_source and data.valid_target"


def split_examples(
    examples: Sequence[T], keys: Iterable[str], candidates: Flags | None, config: RunConfig
) -> tuple[list[T], list[T]]:
    """The training and the validation examples: those with one of the drawn keys are held out, if they may be."""
    hashes = np.frombuffer(b"".join(map(_hash, keys)), np.uint64)
    candidates = np.ones(len(examples), np.bool_) if candidates is None else candidates
    held_out = hold_out_pairs(hashes, candidates, config.data, config.train.seed).tolist()
    both = list(zip(examples, held_out, strict=True))
    return [example for example, out in both if not out], [example for example, out in both if out]


def _valid_size(sources: int) -> int:
    """1 % of the sources, at least 50 and at most 2,000, but never more than 10 %."""
    return max(1, min(max(50, sources // 100), 2000, sources // 10))


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


def _count_unusual(unusual: dict[str, UnusualCharacter], text: str, side: str, number: int) -> None:
    for name, pattern in UNUSUAL_KINDS:
        if count := len(pattern.findall(text)):
            first = unusual.get(name, UnusualCharacter(0, side, number))
            unusual[name] = UnusualCharacter(first.count + count, first.side, first.line)
