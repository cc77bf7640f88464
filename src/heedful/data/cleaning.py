"""`heedful clean`: a parallel corpus through filters, with a table of what each one dropped.

Two passes: the first samples pairs that the cheap filters keep, from which the others learn; the second writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from heedful.data.pair_filters import CHEAP, FilterThresholds, Judge, LearnedFilters, SeenPairs, is_length, is_ratio
from heedful.errors import DataError, SettingError, quote
from heedful.formats.line_files import DroppedLines
from heedful.formats.pair_files import PairCorpus

FILTERS = {
    "empty": "a side without text",
    "length": "too few or too many words",
    "ratio": "one side much longer than the other",
    "copy": "a target that is its source",
    "placeholders": "variables that differ",
    "numbers": "numbers that differ",
    "script": "letters of a script that the side does not use",
    "duplicate": "a copy of an earlier pair",
    "near-duplicate": "a copy but for case, punctuation and numbers",
    "language": "a side in the language of the other",
    "alignment": "words that do not translate each other",
}  # in the order in which they judge
SAMPLE = 100_000  # pairs that filters learn from
EXAMPLES = 2


@dataclass
class FilterCount:
    """How many pairs a filter dropped, and the first of them."""

    count: int = 0
    examples: list[tuple[str, str]] = field(default_factory=list)

    def add(self, source: str, target: str) -> None:
        self.count += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append((source, target))


@dataclass
class CleaningReport:
    """What was read, kept and dropped."""

    read: int = 0
    kept: int = 0
    unreadable: DroppedLines = field(default_factory=DroppedLines)
    dropped: dict[str, FilterCount] = field(default_factory=dict)

    @property
    def readable(self) -> int:
        """Pairs that the filters saw."""
        return self.read - self.unreadable.total

    def check(self, corpus: PairCorpus) -> None:
        """Refuse a corpus of which nothing is left."""
        if not self.readable:
            raise DataError(
                f"{corpus} has no pairs{self.unreadable.first()}; check that it is the right file, UTF-8, and that "
                "every line of a TSV file is source TAB target."
            )
        if not self.kept:
            raise DataError(
                f"the filters dropped all {self.readable:,} pairs of {corpus}; loosen them, or leave one out."
            )

    def lines(self) -> list[str]:
        """The table as text, with examples."""
        rows = [
            (reason, dropped.count, "lines that cannot be read as pairs") for reason, dropped in self.unreadable.items()
        ]
        rows += [(name, self.dropped[name].count, FILTERS[name]) for name in self.dropped]
        width = max([len(name) for name, _, _ in rows] + [7])
        lines = [f"{'filter':<{width}}  {'dropped':>9}  reason"]
        for name, count, reason in rows:
            lines.append(f"{name:<{width}}  {count:>9,}  {reason}")
            examples = self.dropped[name].examples if name in self.dropped else []
            lines += [f"{'':<{width}}    {_shorten(source)}  |  {_shorten(target)}" for source, target in examples]
        share = 100 * self.kept / max(1, self.read)
        return [*lines, f"{self.read:,} pairs read, {self.kept:,} kept ({share:.1f} %)"]


def check_names(names: Iterable[str]) -> None:
    for name in names:
        if name not in FILTERS:
            raise SettingError(f"there is no filter {quote(name)}; the filters are {', '.join(FILTERS)}.")


def clean_pairs(
    corpus: PairCorpus, limits: FilterThresholds, without: Sequence[str], report: CleaningReport
) -> Iterator[tuple[str, str]]:
    """The pairs that all filters keep, except those `without`; `report` counts the others."""
    check_names(without)
    names = [name for name in FILTERS if name not in without]
    cheap = _cheap_filters(names, limits)
    judges = [*cheap, *_learned_filters(names, _sample(corpus, cheap), limits)]
    judges.sort(key=lambda item: list(FILTERS).index(item[0]))
    report.dropped = {name: FilterCount() for name, _ in judges}
    unreadable = 0
    for source, target in corpus.pairs(None, report.unreadable):
        report.read += 1
        if report.unreadable.total > unreadable:  # counted there
            unreadable += 1
            continue
        name = next((name for name, judge in judges if judge(source, target)), None)
        if name is None:
            report.kept += 1
            yield source, target
        else:
            report.dropped[name].add(source, target)


def _is_empty(source: str, target: str) -> bool:
    return not source.strip() or not target.strip()


def _cheap_filters(names: Sequence[str], limits: FilterThresholds) -> list[tuple[str, Judge]]:
    judges: dict[str, Judge] = {
        "empty": _is_empty,
        "length": partial(is_length, limits=limits),
        "ratio": partial(is_ratio, limits=limits),
        **CHEAP,
    }
    return [(name, judge) for name, judge in judges.items() if name in names]


def _sample(corpus: PairCorpus, cheap: Sequence[tuple[str, Judge]]) -> list[tuple[str, str]]:
    """Pairs that the cheap filters keep, evenly from the whole corpus."""
    sample: list[tuple[str, str]] = []
    step, seen = 1, 0
    for source, target in corpus.pairs():
        if _is_empty(source, target) or any(judge(source, target) for _, judge in cheap):
            continue
        if seen % step == 0:
            sample.append((source, target))
        seen += 1
        if len(sample) == 2 * SAMPLE:
            sample, step = sample[::2], 2 * step
    return sample


def _learned_filters(
    names: Sequence[str], sample: Sequence[tuple[str, str]], limits: FilterThresholds
) -> list[tuple[str, Judge]]:
    learned = LearnedFilters.learn(sample, limits, "alignment" in names)
    judges: dict[str, Judge] = {
        "script": learned.wrong_script,
        "duplicate": SeenPairs(near=False),
        "near-duplicate": SeenPairs(near=True),
        "language": learned.wrong_language,
        "alignment": learned.misaligned,
    }
    return [(name, judge) for name, judge in judges.items() if name in names]


def _shorten(text: str) -> str:
    return text if len(text) <= 45 else f"{text[:44]}…"
