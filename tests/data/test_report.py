"""Nothing is dropped in silence: the numbers of a report add up, and its words say what happened."""

from pathlib import Path

import numpy as np
import pytest

from heedful.data import DataReport, Lengths, UnusualCharacter, prepare_parallel

from .files import config, sentence_pairs, write_tsv


@pytest.fixture
def report(tmp_path: Path) -> DataReport:
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
    return prepare_parallel(config(pairs=path, max_length=100), tmp_path / "store").report


def test_every_pair_is_accounted_for(report: DataReport) -> None:
    assert report.read == 320 + 3 + 9 + 2 + 1
    assert report.read == report.kept + report.held_out + sum(report.dropped.values())
    assert report.dropped == {"empty side": 2, "exact duplicate": 5, "too long": 1, "length ratio": 1}
    assert (report.identical, report.extra_columns) == (1, 1)
    assert report.held_out == report.valid_kept > 0


def test_odd_characters_are_counted_with_their_first_place(report: DataReport) -> None:
    found = {name.split()[0]: odd for name, odd in report.oddities.items()}
    assert found == {
        "line": UnusualCharacter(2, "source", 321),
        "control": UnusualCharacter(1, "target", 321),
        "replacement": UnusualCharacter(2, "source", 322),
        "invisible": UnusualCharacter(1, "target", 322),
        "private-use": UnusualCharacter(1, "source", 323),
    }


def test_a_report_survives_json(report: DataReport) -> None:
    assert DataReport.from_json(report.to_json()) == report


def test_a_report_is_readable(report: DataReport) -> None:
    text = "\n".join(report.lines())
    for words in (
        "335 pairs read from",
        "  2 dropped: empty side",
        "  5 dropped: exact duplicate",
        "  1 dropped: too long",
        "sources that left the corpus",
        "tokens for both languages",
        "source length in tokens: mean",
        "1 pairs have the same text on both sides (kept)",
        "1 lines have more than two columns",
        "2 line separators inside a line (U+2028, U+2029, U+0085, \\v, \\f), first on the source side of line 321",
    ):
        assert words in text
    assert "warning" not in text


def test_validation_files_are_reported() -> None:
    report = DataReport(
        valid_corpus="v.tsv", valid_read=9, valid_kept=7, valid_dropped={"too long": 2}, valid_overlap=3
    )
    report.joint, report.source_vocab_size, report.target_vocab_size = False, 5000, 6000
    text = "\n".join(report.lines())
    assert "validation: 7 of 9 pairs of v.tsv" in text
    assert "  2 dropped from validation: too long" in text
    assert "warning: 3 training pairs have a source of the validation set (kept)" in text
    assert "5,000 source and 6,000 target tokens" in text


def test_lengths() -> None:
    lengths = Lengths.of(np.arange(1, 101))
    assert (lengths.mean, lengths.median, lengths.max, lengths.total) == (50.5, 50.5, 100, 5050)
    assert lengths.p95 == pytest.approx(95.05)
    assert Lengths.of(np.zeros(0, np.int64)) == Lengths()
    assert str(lengths) == "mean 50.5, median 50.5, 95 % 95.05, longest 100"
