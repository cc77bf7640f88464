"""Parallel text -> pairs of ids on disk: filter, hold out, train vocabularies, encode.

Two passes over the files: `scan` hashes every pair, so duplicates and the validation set are chosen without text in
memory; then the chosen pairs are encoded chunk by chunk. Knows files and ids; knows no batches and no torch.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.config import DataSettings, RunConfig
from heedful.data.corpus import Accept, Corpus, CorpusBuilder, Progress, Tokenizers, accept_any, ignore_progress
from heedful.data.data_report import DUPLICATE, EMPTY, LONG, RATIO, Lengths, ParallelReport
from heedful.data.pair_filters import CHEAP
from heedful.data.pairs import Pairs, PairsWriter, id_type, open_pairs
from heedful.data.scan import Scan, duplicates, hold_out_pairs, scan
from heedful.data.term_augmentation import SAMPLE as AUGMENTATION_SAMPLE
from heedful.data.term_augmentation import TermAugmentation
from heedful.errors import DataError, SettingError
from heedful.formats.pair_files import PairCorpus, PairFiles, training_corpus, validation_corpus
from heedful.text import Tokenizer, normalize_function, train_vocabulary
from heedful.text.placeholders import mask_pair
from heedful.text.term_annotation import TERM_MARKS, has_term_marks
from heedful.text.vocabulary import slot_ids

USUAL_FILTERS = ("copy", "placeholders")  # of translation memories and localization files
DROP, TRAIN, VALID = 0, 1, 2  # what a line is assigned to
Assignment = NDArray[np.uint8]

CHUNK_PAIRS, CHUNK_CHARACTERS = 20_000, 4_000_000  # encoded at once
UNFINISHED = re.compile("fuzzy|no translation|state ")  # reasons for which localization files drop a segment
MIN_SLOT_PAIRS = 100  # pairs with placeholders from which on a vocabulary has slots for them
MAX_VOCABULARY_PAIRS = 1_000_000  # a larger corpus is sampled to train the vocabulary


@dataclass(frozen=True, kw_only=True)
class ParallelCorpus(Corpus[ParallelReport]):
    """Encoded pairs. Both tokenizers are one object if the vocabulary is joint."""

    train: Pairs
    valid: Pairs
    valid_text: list[tuple[str, str]]

    @classmethod
    def contents(cls, path: Path, tokenizers: Tokenizers) -> dict[str, Any]:
        types = _id_types(tokenizers)
        return {
            "train": open_pairs(path, "train", types),
            "valid": open_pairs(path, "valid", types),
            "valid_text": [(source, target) for source, target in json.loads((path / "valid.json").read_text("utf-8"))],
        }

    @property
    def source_tokenizer(self) -> Tokenizer:
        return self.tokenizers[0]

    @property
    def target_tokenizer(self) -> Tokenizer:
        return self.tokenizers[1]

    @property
    def joint(self) -> bool:
        return self.source_tokenizer is self.target_tokenizer


def prepare_parallel(
    config: RunConfig,
    cache_dir: Path,
    progress: Progress = ignore_progress,
    accept: Accept = accept_any,
    tokenizers: Tokenizers | None = None,
) -> ParallelCorpus:
    """The encoded parallel corpus of a run, from `cache_dir` if it is there already.

    `tokenizers` (source and target) are those of a model that is fine-tuned; otherwise vocabularies are trained.
    """
    train, valid = training_corpus(config.data), validation_corpus(config.data)
    return ParallelBuilder(config, train, valid, tokenizers, progress).prepare(cache_dir, accept)


@dataclass(frozen=True)
class SelectedPairs:
    """The pairs of a corpus that are assigned to one of `sets`; can be iterated more than once."""

    corpus: PairCorpus
    assignment: Assignment  # one entry per line
    sets: frozenset[int]

    def __len__(self) -> int:
        return int(np.isin(self.assignment, list(self.sets)).sum())

    def __iter__(self) -> Iterator[tuple[str, str, int]]:
        assignment = itertools.chain(self.assignment.tobytes(), itertools.repeat(None))
        remaining = len(self.assignment)
        for pair, assigned in zip(self.corpus.pairs(), assignment, strict=False):
            remaining -= 1
            if assigned in self.sets:
                yield *pair, assigned
        if remaining:
            raise DataError(f"{self.corpus} changed while it was read; start again when it is complete.")


@dataclass(frozen=True)
class SampledLines:
    """The lines of one or both sides of every `step`-th pair, as they are encoded: with slots and annotated terms."""

    pairs: SelectedPairs
    sides: tuple[int, ...]
    step: int
    slots: bool = False
    augmentation: TermAugmentation | None = None

    def __iter__(self) -> Iterator[str]:
        for source, target, _ in itertools.islice(self.pairs, 0, None, self.step):
            pair = (self.slots and mask_pair(source, target)) or (source, target)
            if self.augmentation is not None:
                pair = self.augmentation.annotate(*pair)
            for side in self.sides:
                yield pair[side]


class PairEncoder:
    """Encodes pairs, drops those of unsuitable length, and appends the others to the set they are assigned to."""

    def __init__(
        self,
        folder: Path,
        tokenizers: Tokenizers,
        data: DataSettings,
        progress: Progress,
        augmentation: TermAugmentation | None,
    ) -> None:
        types = _id_types(tokenizers)
        self.writers = {TRAIN: PairsWriter(folder, "train", types), VALID: PairsWriter(folder, "valid", types)}
        self.tokenizers, self.progress = tokenizers, progress
        self.max_length, self.max_source_length = data.max_length, data.max_source_length or data.max_length
        self.truncate_source = data.truncate_source
        self.truncated = self.truncated_tokens = 0
        self.slots = all(map(slot_ids, tokenizers))
        self.masked = 0  # pairs with slots
        self.augmentation = augmentation
        self.annotated = 0  # pairs with annotated terms
        self.valid_text: list[tuple[str, str]] = []

    def append(self, pairs: SelectedPairs, max_ratio: float) -> Counter[str]:
        """Encode all `pairs`; return how many were dropped, by reason."""
        dropped: Counter[str] = Counter()
        encoded, total = 0, len(pairs)
        for chunk in _chunks(pairs):
            texts = [self._annotate(*self._mask(source, target), assigned) for source, target, assigned in chunk]
            source_ids = self.tokenizers[0].encode_batch([source for source, _ in texts])
            target_ids = self.tokenizers[1].encode_batch([target for _, target in texts])
            rows: dict[int, tuple[list[list[int]], list[list[int]]]] = {name: ([], []) for name in self.writers}
            for (source, target, assigned), a, b in zip(
                chunk, map(self._truncated, source_ids), target_ids, strict=True
            ):
                if reason := self._unsuitable(len(a), len(b), max_ratio):
                    dropped[reason] += 1
                    continue
                rows[assigned][0].append(a)
                rows[assigned][1].append(b)
                if assigned == VALID:
                    self.valid_text.append((source, target))
            for assigned, (sources, targets) in rows.items():
                self.writers[assigned].append(sources, targets)
            encoded += len(chunk)
            self.progress(f"encoded {encoded:,} of {total:,} pairs")
        return dropped

    def _mask(self, source: str, target: str) -> tuple[str, str]:
        """The pair with slots in place of its placeholders, if the vocabularies have slots."""
        masked = mask_pair(source, target) if self.slots else None
        self.masked += masked is not None
        return masked or (source, target)

    def _annotate(self, source: str, target: str, assigned: int) -> tuple[str, str]:
        """A training pair with terms annotated in its source, if that is set."""
        if self.augmentation is None or assigned != TRAIN:
            return source, target
        annotated = self.augmentation.annotate(source, target)
        self.annotated += annotated[0] != source
        return annotated

    def _truncated(self, source: list[int]) -> list[int]:
        if not self.truncate_source or len(source) <= self.max_source_length:
            return source
        self.truncated += 1
        self.truncated_tokens += len(source) - self.max_source_length
        return source[: self.max_source_length]

    def _unsuitable(self, source: int, target: int, max_ratio: float) -> str | None:
        if source > self.max_source_length or target > self.max_length:
            return LONG
        return RATIO if max(source, target) > max_ratio * min(source, target) else None


class ParallelBuilder(CorpusBuilder[PairCorpus, ParallelReport, ParallelCorpus]):
    """Scans, filters, splits and encodes files of pairs."""

    corpus_type = ParallelCorpus
    report_type = ParallelReport

    def settings(self) -> dict[str, Any]:
        names = {"valid_size", "max_length", "max_ratio", "deduplicate"}
        optional = {"source_language", "target_language", "max_source_length", "truncate_source"}
        chosen = self.config.data.model_dump(include=optional, exclude_defaults=True)
        return (
            self.config.data.model_dump(include=names)
            | chosen
            | ({"filters": self.filters()} if self.filters() else {})
            | ({} if self._may_have_slots() else {"slots": False})
            | self.config.train.model_dump(include={"glossary_augmentation"}, exclude_defaults=True)
        )

    def _may_have_slots(self) -> bool:
        return self.config.task != "summarization"

    def filters(self) -> tuple[str, ...]:
        """The filters of training pairs: those that are set, or for translators the usual ones of files of segments.

        Neither a summary nor a sentence of the same meaning repeats the placeholders of its source.
        """
        if self.config.data.filters is not None:
            return self.config.data.filters
        translates = self.config.task in (None, "translation")
        return USUAL_FILTERS if translates and isinstance(self.train, PairFiles) else ()

    def build(self, folder: Path) -> tuple[Tokenizers, ParallelReport]:
        report = ParallelReport()
        report.set_files(self.train, self.valid)
        assignment, valid_assignment = self._assign(report)
        pairs = SelectedPairs(self.train, assignment, frozenset({TRAIN}))
        augmentation = self._augmentation(pairs)
        tokenizers = self.tokenizers or self._train_vocabularies(pairs, augmentation, report)
        source, target = tokenizers
        report.joint = source is target or source.to_json() == target.to_json()
        report.source_vocab_size, report.target_vocab_size = source.vocab_size, target.vocab_size
        self._encode(folder, tokenizers, augmentation, (assignment, valid_assignment), report)
        return tokenizers, report

    def _assign(self, report: ParallelReport) -> tuple[Assignment, Assignment | None]:
        """What each line of the corpus and of the validation files is assigned to, before lengths are known."""
        if self.tokenizers is None:
            normalize = (normalize_function(self.config.text.lowercase),) * 2
        else:
            normalize = (self.tokenizers[0].normalize, self.tokenizers[1].normalize)
        # Validation files are small, so errors in them show early.
        valid = scan(*normalize, self.valid, self.progress) if self.valid is not None else None
        filters = {name: CHEAP[name] for name in self.filters()}
        train = scan(*normalize, self.train, self.progress, filters)
        report.read, report.identical, report.extra_columns = len(train), train.identical, train.extra_columns
        report.unusual = train.unusual
        report.unreadable, report.by_file = train.dropped, train.dropped.by_file
        report.skipped = train.dropped.skipped
        report.dropped |= train.dropped.counts()
        report.dropped[EMPTY] = int(train.empty.sum()) - train.dropped.total
        report.dropped |= {f"filter {name}": train.filtered[name] for name in filters}
        report.examples = {f"filter {name}": example for name, example in train.examples.items()}
        usable = ~train.empty & ~train.unwanted
        if self.config.data.deduplicate:
            repeated = duplicates(train) & usable
            report.dropped[DUPLICATE] = int(repeated.sum())
            usable &= ~repeated
        if not usable.any():
            raise _nothing_left(report, self.config.data)
        assignment = np.where(usable, TRAIN, DROP).astype(np.uint8)
        if valid is None:
            assignment[hold_out_pairs(train.source, usable, self.config.data, self.config.train.seed)] = VALID
            return assignment, None
        report.valid_overlap = int((np.isin(train.source, valid.source[~valid.empty]) & usable).sum())
        return assignment, _assign_valid(valid, report)

    def _augmentation(self, pairs: SelectedPairs) -> TermAugmentation | None:
        rate = self.config.train.glossary_augmentation
        if not rate:
            return None
        if self.tokenizers is not None and not all(map(has_term_marks, self.tokenizers)):
            raise SettingError(
                f"train.glossary_augmentation is {rate:g}, but the vocabulary of the model to start from has no marks "
                "of terms; start from one that was trained with this setting, or leave it out."
            )
        self.progress("learning which words translate each other")
        step = -(-len(pairs) // AUGMENTATION_SAMPLE)
        return TermAugmentation(((a, b) for a, b, _ in itertools.islice(pairs, 0, None, step)), rate)

    def _train_vocabularies(
        self, pairs: SelectedPairs, augmentation: TermAugmentation | None, report: ParallelReport
    ) -> Tokenizers:
        report.sampled = -(-len(pairs) // MAX_VOCABULARY_PAIRS)
        text = self.config.text
        vocabularies = "a joint vocabulary" if text.joint else "two vocabularies"
        self.progress(f"training {vocabularies} on {len(pairs) // report.sampled:,} pairs")
        slots = self._may_have_slots() and _has_placeholders(pairs)
        trained = [
            train_vocabulary(
                SampledLines(pairs, sides, report.sampled, slots, augmentation),
                text.vocab_size,
                text.lowercase,
                slots=slots,
                characters=TERM_MARKS if augmentation is not None else (),
            )
            for sides in ([(0, 1)] if text.joint else [(0,), (1,)])
        ]
        return trained[0], trained[-1]

    def _encode(
        self,
        folder: Path,
        tokenizers: Tokenizers,
        augmentation: TermAugmentation | None,
        assignments: tuple[Assignment, Assignment | None],
        report: ParallelReport,
    ) -> None:
        assignment, valid_assignment = assignments
        encoder = PairEncoder(folder, tokenizers, self.config.data, self.progress, augmentation)
        corpus = SelectedPairs(self.train, assignment, frozenset({TRAIN, VALID}))
        dropped = encoder.append(corpus, self.config.data.max_ratio)
        report.dropped |= {reason: dropped[reason] for reason in (LONG, RATIO)}
        if self.valid is not None and valid_assignment is not None:
            valid = SelectedPairs(self.valid, valid_assignment, frozenset({VALID}))
            report.valid_dropped[LONG] = encoder.append(valid, float("inf"))[LONG]
        source_lengths, target_lengths = encoder.writers[TRAIN].close()
        encoder.writers[VALID].close()
        report.masked, report.annotated = encoder.masked, encoder.annotated
        report.kept, report.valid_kept = len(source_lengths), len(encoder.valid_text)
        report.valid_sources = len({encoder.tokenizers[0].normalize(source) for source, _ in encoder.valid_text})
        report.held_out = report.valid_kept if self.valid is None else 0
        report.source_lengths, report.target_lengths = Lengths.of(source_lengths), Lengths.of(target_lengths)
        report.truncated, report.truncated_tokens = encoder.truncated, encoder.truncated_tokens
        report.source_limit = encoder.max_source_length
        if not report.kept:
            raise _nothing_left(report, self.config.data)
        if not encoder.valid_text:
            where = report.valid_corpus or "the held-out validation set"
            reasons = ", ".join(report.valid_reasons() if self.valid else report.reasons()) or "0 kept"
            raise DataError(f"no pair of {where} is left ({reasons}); give other pairs for validation.")
        (folder / "valid.json").write_text(json.dumps(encoder.valid_text, ensure_ascii=False), encoding="utf-8")


def _assign_valid(valid: Scan, report: ParallelReport) -> Assignment:
    """Validation files are used as they are: only pairs that cannot be scored are dropped."""
    report.valid_read = len(valid)
    report.valid_unreadable = valid.dropped
    report.valid_dropped |= valid.dropped.counts()
    report.valid_dropped[EMPTY] = int(valid.empty.sum()) - valid.dropped.total
    return np.where(valid.empty, DROP, VALID).astype(np.uint8)


def _has_placeholders(pairs: SelectedPairs) -> bool:
    """Whether enough pairs have the same placeholders on both sides for a model to learn slots."""
    masked = (pair for source, target, _ in pairs if (pair := mask_pair(source, target)))
    return sum(1 for _ in itertools.islice(masked, MIN_SLOT_PAIRS)) == MIN_SLOT_PAIRS


def _id_types(tokenizers: Tokenizers) -> tuple[type[np.unsignedinteger], type[np.unsignedinteger]]:
    return id_type(tokenizers[0].vocab_size), id_type(tokenizers[1].vocab_size)


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


def _nothing_left(report: ParallelReport, data: DataSettings) -> DataError:
    lengths = any(report.dropped.get(reason) for reason in (LONG, RATIO))
    advice = "check that it is the right file, UTF-8, and that every line of a TSV file is source TAB target"
    if any(count and UNFINISHED.match(reason) for reason, count in report.dropped.items()):
        advice = "only finished translations are read: give a file that has some, or finish and confirm these"
    if lengths:
        source = " data.max_source_length," if data.max_source_length and not data.truncate_source else ""
        advice = f"{advice}, or raise{source} data.max_length and data.max_ratio"
    return DataError(
        f"no pair of {report.corpus} is left for training: of {report.read:,} read,"
        f" {', '.join(report.reasons()) or '0 kept'}; {advice}."
    )
