"""Filters of pairs: each drops what it names, and IBM Model 1 agrees with loops that read like the paper."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from heedful import demo
from heedful.data.cleaning import FILTERS, CleaningReport, clean_pairs
from heedful.data.lexical_table import learn_table, words_of
from heedful.data.pair_filters import FilterThresholds, is_copy, numbers_differ, placeholders_differ
from heedful.data.parallel_corpus import prepare_parallel
from heedful.errors import SettingError
from heedful.formats.language_tags import WantedLanguages
from heedful.formats.pair_files import open_pairs_of

from ..formats.test_pair_files import tmx
from .files import config


class Rows:
    """A corpus in memory."""

    files = ()

    def __init__(self, rows: list[tuple[str, str]]) -> None:
        self.rows = rows

    def pairs(self, notes: object = None, dropped: object = None) -> Iterator[tuple[str, str]]:
        return iter(self.rows)


def sentence_pairs(count: int, seed: int) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in demo.generate(count, seed)]


def test_ibm_model_1_agrees_with_loops() -> None:
    pairs = [("the house", "das Haus"), ("the book", "das Buch"), ("a book", "ein Buch"), ("the the", "das, ein Haus")]
    split = [(words_of(source), words_of(target)) for source, target in pairs]
    table: dict[tuple[str, str], float] = defaultdict(lambda: 1.0)
    for _ in range(7):
        counts: dict[tuple[str, str], float] = defaultdict(float)
        totals: dict[str, float] = defaultdict(float)
        for source, target in split:
            for t in target:
                norm = sum(table[s, t] for s in source)
                for s in source:
                    counts[s, t] += table[s, t] / norm
                    totals[s] += table[s, t] / norm
        table = defaultdict(float, {(s, t): count / totals[s] for (s, t), count in counts.items()})
    learned = learn_table(pairs, iterations=7)
    for s in ("the", "house", "book", "a"):
        for t in ("das", "haus", "buch", "ein"):
            assert learned.probability(s, t) == pytest.approx(table[s, t], abs=1e-12)
    assert learned.probability("book", "buch") > 0.8
    assert learned.score("a book", "ein Buch") > learned.score("a book", "das Haus")


@pytest.mark.parametrize(
    ("source", "target", "differ"),
    [
        ("It costs 3.5 in 2024", "Es kostet 3,5 im Jahr 2024", False),
        ("1,000 dogs", "1 000 Hunde", False),
        ("2 dogs", "zwei Hunde", False),
        ("12 dogs", "13 Hunde", True),
        ("12 and 12", "12", True),
    ],
)
def test_numbers(source: str, target: str, differ: bool) -> None:
    assert numbers_differ(source, target) == differ


def test_copies_and_placeholders() -> None:
    assert is_copy("This is Text", "this is text")
    assert not is_copy("Tom Smith", "Tom Smith")
    assert placeholders_differ("%d files in {folder}", "%d Dateien in folder")
    assert not placeholders_differ("%d files in {folder}", "In {folder}: %d Dateien")


def test_every_filter_drops_what_it_names() -> None:
    good = sentence_pairs(1200, seed=3)
    bad = {
        "empty": ("a dog", " "),
        "length": ("a " * 201, "b " * 201),
        "ratio": ("a dog", "ein Hund " * 9),
        "copy": ("the dog is here today", "the dog is here today"),
        "placeholders": ("the dog {name} sees a cat", "der Hund sieht eine Katze"),
        "numbers": ("the dog sees 15 cats", "der Hund sieht 51 Katzen"),
        "script": ("the dog sees a cat", "собака видит кошку"),
        "duplicate": good[5],
        "near-duplicate": (good[6][0].upper() + "!", good[6][1]),
        "language": (good[7][1], good[7][0]),
        "alignment": (good[8][0], next(b for a, b in good if not set(words_of(b)) & set(words_of(good[8][1])))),
    }
    assert list(bad) == list(FILTERS)
    report = CleaningReport()
    mismatched = [(one[0], other[1]) for one, other in zip(good[100:150], good[200:250], strict=True)]
    rows = [*good, *mismatched, *bad.values()]
    clean = list(clean_pairs(Rows(rows), FilterThresholds(), [], report))
    for name, pair in bad.items():
        assert pair in report.dropped[name].examples or report.dropped[name].count > 2, name
    assert len(clean) + sum(dropped.count for dropped in report.dropped.values()) == report.read == len(rows)
    assert len(clean) > 0.97 * len(good)
    assert len(set(mismatched) & set(clean)) < 0.5 * len(mismatched)
    assert report.lines()[-1] == f"{len(rows):,} pairs read, {len(clean):,} kept ({100 * len(clean) / len(rows):.1f} %)"
    assert list(clean_pairs(Rows(rows), FilterThresholds(), list(FILTERS), CleaningReport())) == rows
    with pytest.raises(SettingError, match="there is no filter 'spam'; the filters are empty, "):
        list(clean_pairs(Rows(rows), FilterThresholds(), ["spam"], CleaningReport()))


def test_misaligned_pairs_are_found() -> None:
    pairs = sentence_pairs(2500, seed=4)
    shuffled = [target for _, target in pairs[:200]]
    random.Random(1).shuffle(shuffled)
    wrong = {(source, target) for (source, _), target in zip(pairs[:200], shuffled, strict=True)} - set(pairs)
    report = CleaningReport()
    clean = set(clean_pairs(Rows([*pairs[200:], *wrong]), FilterThresholds(), ["near-duplicate"], report))
    assert len(wrong & clean) < 0.2 * len(wrong)
    assert len(set(pairs[200:]) - clean) < 0.03 * len(pairs)
    good = pairs[200:]
    assert len(set(good) - set(clean_pairs(Rows(good), FilterThresholds(), ["near-duplicate"], report))) < 0.01 * 2300
    few = good[:60]  # too few to learn from
    assert list(clean_pairs(Rows(few), FilterThresholds(), ["near-duplicate"], report)) == few


def test_training_uses_cheap_filters_for_segments(tmp_path: Path) -> None:
    path = tmp_path / "memory.tmx"
    rows = [{"en": f"number {n} is here", "de": f"Nummer {n} ist hier"} for n in range(60)]
    path.write_bytes(tmx([*rows, {"en": "a b c", "de": "a b c"}, {"en": "{x} is", "de": "ist"}]))
    report = prepare_parallel(config(pairs=path), tmp_path / "cache").report
    assert "  1 dropped: filter copy (first: pair 61: 'a b c' and 'a b c')" in report.lines()
    assert "  1 dropped: filter placeholders (first: pair 62: '{x} is' and 'ist')" in report.lines()
    assert report.kept + report.held_out == 60
    assert (
        prepare_parallel(config(pairs=path, filters=[]), tmp_path / "cache").report.dropped.get("filter copy") is None
    )
    for task in ("summarization", "similarity"):  # a summary need not repeat the placeholders of its document
        settings = config(pairs=path).model_copy(update={"task": task})
        assert prepare_parallel(settings, tmp_path / "cache").report.kept + report.held_out == 62
    tsv = tmp_path / "a.tsv"
    tsv.write_text("".join(f"{row['en']}\t{row['en']}\n" for row in rows), encoding="utf-8")
    assert prepare_parallel(config(pairs=tsv), tmp_path / "cache").report.dropped.get("filter copy") is None
    assert open_pairs_of([tsv], WantedLanguages(), False).files == [tsv]
