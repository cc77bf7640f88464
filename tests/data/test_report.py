"""Nothing is dropped in silence: the numbers of a report add up, and its words say what happened."""

from pathlib import Path

import numpy as np
import pytest

from heedful.data.data_report import Lengths, ParallelReport, UnusualCharacter
from heedful.data.parallel_corpus import prepare_parallel

from .files import config, sentence_pairs, write_tsv


@pytest.fixture
def report(tmp_path: Path) -> ParallelReport:
    odd = [
        ("a\u2028b\x0c", "c\u0007d"),  # line 321
        ("\ufffd", "e\u200bf"),
        ("x \ue000", "y\ufffd"),
    ]
    bad = [
        ("", "leer"),
        ("empty", "\u00a0 "),
        ("same", "same"),
        *sentence_pairs()[:5],
        ("  The dog sees the dog.", "x"),
    ]
    long = [("long " * 200, "lang " * 200), ("a", "b " * 30)]
    path = write_tsv(tmp_path / "corpus.tsv", sentence_pairs() + odd + bad + long)
    with path.open("a", encoding="utf-8") as file:
        file.write("two\tzwei\tdos\tdeux\n")
    return prepare_parallel(config(pairs=path, max_length=100), tmp_path / "cache").report


def test_every_pair_is_accounted_for(report: ParallelReport) -> None:
    assert report.read == 320 + 3 + 9 + 2 + 1
    assert report.read == report.kept + report.held_out + sum(report.dropped.values())
    assert report.dropped == {"empty side": 2, "exact duplicate": 5, "too long": 1, "length ratio": 1}
    assert (report.identical, report.extra_columns) == (1, 1)
    assert report.held_out == report.valid_kept > 0


def test_odd_characters_are_counted_with_their_first_place(report: ParallelReport) -> None:
    result = {name.split()[0]: odd for name, odd in report.unusual.items()}
    assert result == {
        "line": UnusualCharacter(2, "source", 321),
        "control": UnusualCharacter(1, "target", 321),
        "replacement": UnusualCharacter(2, "source", 322),
        "invisible": UnusualCharacter(1, "target", 322),
        "private-use": UnusualCharacter(1, "source", 323),
    }


def test_a_report_survives_json(report: ParallelReport) -> None:
    assert ParallelReport.from_json(report.to_json()) == report


def test_a_report_is_readable(report: ParallelReport) -> None:
    text = "\n".join(report.lines())
    for words in (
        "335 pairs read from",
        "  2 dropped: empty side",
        "  5 dropped: exact duplicate",
        "  1 dropped: too long",
        "pairs held out from the training data (",
        "tokens, shared by source and target",
        "source length in tokens: mean",
        "pairs whose source and target are the same text: 1 (kept)",
        "lines with more than two columns: 1 (only the first two columns are used)",
        "line separators inside a line (U+2028, U+2029, U+0085, \\v, \\f): 2 (first: line 321, source side)",
    ):
        assert words in text
    assert "warning" not in text


def test_validation_files_are_reported() -> None:
    report = ParallelReport(
        valid_corpus="v.tsv", valid_read=9, valid_kept=7, valid_dropped={"too long": 2}, valid_overlap=3
    )
    report.joint, report.source_vocab_size, report.target_vocab_size = False, 5000, 6000
    text = "\n".join(report.lines())
    assert "validation set: 7 of 9 pairs read from v.tsv" in text
    assert "  2 dropped from validation: too long" in text
    assert "warning: the source sentences of 3 training pairs also occur in the validation set (kept)" in text
    assert "5,000 source tokens, 6,000 target tokens" in text


def test_lengths() -> None:
    lengths = Lengths.of(np.arange(1, 101))
    assert (lengths.mean, lengths.median, lengths.max, lengths.total) == (50.5, 50.5, 100, 5050)
    assert lengths.p95 == pytest.approx(95.05)
    assert Lengths.of(np.zeros(0, np.int64)) == Lengths()
    assert str(lengths) == "mean 50.5, median 50.5, 95th percentile 95.05, maximum 100"
