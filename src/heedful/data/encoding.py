"""Fills the folder of a store: scan, split, vocabulary, ids, report.

Called by `prepare` with an empty folder. Text passes through in chunks, so memory does not grow with the corpus but for
some bytes a pair. Does not know whether or where the result is kept.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from heedful.config import RunConfig
from heedful.data.data_report import DUPLICATE, EMPTY, LONG, RATIO, DataReport, Lengths
from heedful.data.pairs import PairsWriter, id_type
from heedful.data.scan import Scan, duplicates, hold_out_pairs, scan
from heedful.errors import DataError
from heedful.formats.line_files import ParallelFiles
from heedful.text import Tokenizer, normalize_function, train_vocabulary

Progress = Callable[[str], None]
Both = tuple[Tokenizer, Tokenizer]

DROP, TRAIN, VALID = 0, 1, 2  # the fate of a line
CHUNK_PAIRS, CHUNK_CHARACTERS = 20_000, 4_000_000  # encoded at once
LEARN_FROM = 1_000_000  # pairs; a vocabulary does not get better from more


@dataclass(frozen=True)
class Chosen:
    """The pairs of a corpus that have the given fate; can be read again and again."""

    corpus: ParallelFiles
    fates: NDArray[np.uint8]
    wanted: frozenset[int]

    def __iter__(self) -> Iterator[tuple[str, str, int]]:
        fates = itertools.chain(self.fates.tobytes(), itertools.repeat(None))
        ended = len(self.fates)
        for pair, fate in zip(self.corpus.pairs(), fates, strict=False):
            ended -= 1
            if fate in self.wanted:
                yield *pair, fate
        if ended:
            raise DataError(f"{self.corpus} changed while it was read; start again when it is complete.")


@dataclass(frozen=True)
class Sides:
    """The lines of one side or both of every so many training pairs."""

    chosen: Chosen
    sides: tuple[int, ...]
    step: int

    def __iter__(self) -> Iterator[str]:
        for pair in itertools.islice(self.chosen, 0, None, self.step):
            for side in self.sides:
                yield str(pair[side])


def build(
    config: RunConfig,
    train: ParallelFiles,
    valid: ParallelFiles | None,
    tokenizers: Both | None,
    folder: Path,
    progress: Progress,
) -> None:
    """Write the ids of both sets, the vocabularies, the text of the validation set and the report."""
    report = DataReport()
    report.name(train, valid)
    fates, valid_fates = _decide(config, train, valid, tokenizers, report, progress)
    if tokenizers is None:
        tokenizers = _learn(config, Chosen(train, fates, frozenset({TRAIN})), report, progress)
    source, target = tokenizers
    report.joint = source is target or source.to_json() == target.to_json()
    report.source_vocab_size, report.target_vocab_size = source.vocab_size, target.vocab_size
    source.save(folder / "source.tokenizer.json")
    if not report.joint:
        target.save(folder / "target.tokenizer.json")
    _encode(config, train, fates, valid, valid_fates, tokenizers, folder, report, progress)
    (folder / "report.json").write_text(report.to_json(), encoding="utf-8")


def _decide(
    config: RunConfig,
    train: ParallelFiles,
    valid: ParallelFiles | None,
    tokenizers: Both | None,
    report: DataReport,
    progress: Progress,
) -> tuple[NDArray[np.uint8], NDArray[np.uint8] | None]:
    """The fate of every line of the corpus and of the validation files, before lengths are known."""
    if tokenizers is None:
        normalise = (normalize_function(config.text.lowercase),) * 2
    else:
        normalise = (tokenizers[0].normalize, tokenizers[1].normalize)
    held = scan(*normalise, valid, progress) if valid is not None else None  # small, so its faults are soon found
    found = scan(*normalise, train, progress)
    report.read, report.identical, report.extra_columns = len(found), found.identical, found.extra_columns
    report.oddities = found.oddities
    good = ~found.empty
    report.unreadable = found.dropped
    report.dropped |= found.dropped.counts()
    report.dropped[EMPTY] = int(found.empty.sum()) - found.dropped.total
    if config.data.deduplicate:
        repeated = duplicates(found) & good
        report.dropped[DUPLICATE] = int(repeated.sum())
        good &= ~repeated
    if not good.any():
        raise _nothing_left(report)
    fates = np.where(good, TRAIN, DROP).astype(np.uint8)
    if held is None:
        fates[hold_out_pairs(found.source, good, config.data, config.train.seed)] = VALID
        return fates, None
    return fates, _decide_valid(held, found, good, report)


def _decide_valid(held: Scan, found: Scan, good: NDArray[np.bool_], report: DataReport) -> NDArray[np.uint8]:
    """Validation files are measured as they are given: only what cannot be measured is left out."""
    report.valid_read = len(held)
    report.valid_unreadable = held.dropped
    report.valid_dropped |= held.dropped.counts()
    report.valid_dropped[EMPTY] = int(held.empty.sum()) - held.dropped.total
    report.valid_overlap = int((np.isin(found.source, held.source[~held.empty]) & good).sum())
    return np.where(held.empty, DROP, VALID).astype(np.uint8)


def _learn(config: RunConfig, chosen: Chosen, report: DataReport, progress: Progress) -> Both:
    pairs = int((chosen.fates == TRAIN).sum())
    report.sampled = -(-pairs // LEARN_FROM)
    text = config.text
    if text.joint:
        progress(f"learning a vocabulary from {pairs // report.sampled:,} pairs")
        both = train_vocabulary(Sides(chosen, (0, 1), report.sampled), text.vocab_size, text.lowercase)
        return both, both
    progress(f"learning two vocabularies from {pairs // report.sampled:,} pairs")
    source, target = (
        train_vocabulary(Sides(chosen, (i,), report.sampled), text.vocab_size, text.lowercase) for i in (0, 1)
    )
    return source, target


def _encode(
    config: RunConfig,
    train: ParallelFiles,
    fates: NDArray[np.uint8],
    valid: ParallelFiles | None,
    valid_fates: NDArray[np.uint8] | None,
    tokenizers: Both,
    folder: Path,
    report: DataReport,
    progress: Progress,
) -> None:
    types = (id_type(tokenizers[0].vocab_size), id_type(tokenizers[1].vocab_size))
    writers = {TRAIN: PairsWriter(folder, "train", types), VALID: PairsWriter(folder, "valid", types)}
    texts: list[tuple[str, str]] = []
    longest, ratio = config.data.max_length, config.data.max_ratio
    corpus = Chosen(train, fates, frozenset({TRAIN, VALID}))
    dropped = _append(corpus, tokenizers, writers, texts, longest, ratio, progress)
    report.dropped |= {reason: dropped[reason] for reason in (LONG, RATIO)}
    if valid is not None and valid_fates is not None:
        given = Chosen(valid, valid_fates, frozenset({VALID}))
        dropped = _append(given, tokenizers, writers, texts, longest, float("inf"), progress)
        report.valid_dropped[LONG] = dropped[LONG]
    source_lengths, target_lengths = writers[TRAIN].close()
    writers[VALID].close()
    report.kept, report.valid_kept = len(source_lengths), len(texts)
    report.valid_sources = len({tokenizers[0].normalize(source) for source, _ in texts})
    report.held_out = report.valid_kept if valid is None else 0
    report.source_lengths, report.target_lengths = Lengths.of(source_lengths), Lengths.of(target_lengths)
    if not report.kept:
        raise _nothing_left(report)
    if not texts:
        where = report.valid_corpus or "what was held out for validation"
        reasons = ", ".join(report.valid_reasons() if valid else report.reasons()) or "0 kept"
        raise DataError(f"no pair of {where} is left ({reasons}); give other pairs for validation.")
    (folder / "valid.json").write_text(json.dumps(texts, ensure_ascii=False), encoding="utf-8")


def _append(
    chosen: Chosen,
    tokenizers: Both,
    writers: dict[int, PairsWriter],
    texts: list[tuple[str, str]],
    longest: int,
    ratio: float,
    progress: Progress,
) -> Counter[str]:
    """Encode the chosen pairs, drop those of unsuitable length, and append the others where they belong."""
    dropped: Counter[str] = Counter()
    done = 0
    total = int(np.isin(chosen.fates, list(chosen.wanted)).sum())
    for chunk in _chunks(chosen):
        sources = tokenizers[0].encode_batch([source for source, _, _ in chunk])
        targets = tokenizers[1].encode_batch([target for _, target, _ in chunk])
        kept: dict[int, tuple[list[list[int]], list[list[int]]]] = {fate: ([], []) for fate in writers}
        for (source, target, fate), a, b in zip(chunk, sources, targets, strict=True):
            if reason := _unsuitable(len(a), len(b), longest, ratio):
                dropped[reason] += 1
                continue
            kept[fate][0].append(a)
            kept[fate][1].append(b)
            if fate == VALID:
                texts.append((source, target))
        for fate, (a_rows, b_rows) in kept.items():
            writers[fate].append(a_rows, b_rows)
        done += len(chunk)
        progress(f"encoded {done:,} of {total:,} pairs")
    return dropped


def _unsuitable(source: int, target: int, longest: int, ratio: float) -> str | None:
    if max(source, target) > longest:
        return LONG
    return RATIO if max(source, target) > ratio * min(source, target) else None


def _chunks(pairs: Iterable[tuple[str, str, int]]) -> Iterator[list[tuple[str, str, int]]]:
    chunk: list[tuple[str, str, int]] = []
    characters = 0
    for pair in pairs:
        chunk.append(pair)
        characters += len(pair[0]) + len(pair[1])
        if len(chunk) == CHUNK_PAIRS or characters > CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def _nothing_left(report: DataReport) -> DataError:
    lengths = any(report.dropped.get(reason) for reason in (LONG, RATIO))
    advice = "check that it is the right file, UTF-8, and that every line of a TSV file is source TAB target"
    advice = f"{advice}, or loosen data.max_length and data.max_ratio" if lengths else advice
    return DataError(
        f"no pair of {report.corpus} is left for training: of {report.read:,} read,"
        f" {', '.join(report.reasons()) or '0 kept'}; {advice}."
    )
