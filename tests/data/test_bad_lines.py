"""A line that cannot be read does not stop a corpus: it is dropped, counted and shown with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from heedful import config as settings
from heedful.data.labeled_corpus import read_labeled
from heedful.data.parallel_corpus import ParallelCorpus, prepare_parallel
from heedful.data.text_corpus import prepare_text
from heedful.errors import DataError
from heedful.formats.line_files import DroppedLines

from .files import config, sentence_pairs

LATIN, NUL = "sch\xf6n".encode("latin-1"), b"a\0b"


def lines(*more: bytes, side: int) -> bytes:
    return b"\n".join([*(pair[side].encode() for pair in sentence_pairs()), *more]) + b"\n"


def line_files(folder: Path, **data: object) -> ParallelCorpus:
    """321: bad source; 322: bad target; 323: both bad."""
    (folder / "a.en").write_bytes(lines(LATIN, b"good", NUL, side=0))
    (folder / "a.de").write_bytes(lines(b"gut", LATIN, LATIN, side=1))
    return prepare_parallel(config(source=folder / "a.en", target=folder / "a.de", **data), folder / "cache")


def test_pairs_of_line_files_with_a_bad_side_are_dropped(tmp_path: Path) -> None:
    report = line_files(tmp_path).report
    assert report.read == 323 == report.kept + report.held_out + sum(report.dropped.values())
    assert {reason: count for reason, count in report.dropped.items() if count and reason != "exact duplicate"} == {
        "not UTF-8": 2,
        "a NUL character, as in binary or UTF-16 files": 1,
    }
    text = "\n".join(report.lines())
    assert f"  2 dropped: not UTF-8 (first: line 321 of {tmp_path / 'a.en'})" in text
    assert f"UTF-16 files (first: line 323 of {tmp_path / 'a.en'})" in text
    again = line_files(tmp_path)
    assert again.reused
    assert again.report.lines() == report.lines()


def test_lines_without_a_tab_are_dropped_too_and_validation_is_reported(tmp_path: Path) -> None:
    pairs = [f"{source}\t{target}".encode() for source, target in sentence_pairs()]
    (tmp_path / "a.tsv").write_bytes(b"\n".join([*pairs, b"no tab", LATIN + b"\tx"]))
    (tmp_path / "v.tsv").write_bytes(b"\n".join([LATIN, b"one\teins", b"two\tzwei"]))
    report = prepare_parallel(
        config(pairs=tmp_path / "a.tsv", valid_pairs=tmp_path / "v.tsv"), tmp_path / "cache"
    ).report
    text = "\n".join(report.lines())
    assert f"  1 dropped: no TAB (first: line 321 of {tmp_path / 'a.tsv'})" in text
    assert f"  1 dropped: not UTF-8 (first: line 322 of {tmp_path / 'a.tsv'})" in text
    assert f"  1 dropped from validation: not UTF-8 (first: line 1 of {tmp_path / 'v.tsv'})" in text
    assert report.valid_kept == 2


def test_bad_lines_of_a_text_are_left_out_and_end_no_document(tmp_path: Path) -> None:
    good, odd = tmp_path / "a.txt", tmp_path / "b.txt"
    good.write_bytes(lines(side=0))
    odd.write_bytes(lines(side=1) + b"before\n" + LATIN + b"\nafter\n" + NUL + b"\n")
    requested = settings.load_config(None, ["data.documents=files"], data={"text": [good, odd], "valid_text": odd})
    report = prepare_text(requested, tmp_path / "cache").report
    assert report.documents == 2
    assert report.bytes == len(lines(side=0)) + len(lines(side=1)) + len(b"before\nafter\n")
    text = "\n".join(report.lines())
    assert text.count(f"  1 line dropped: not UTF-8 (first: line 322 of {odd})") == 2
    assert prepare_text(requested, tmp_path / "cache").report.lines() == report.lines()


def test_bad_lines_of_labeled_texts_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes(b"a\tx\n" + LATIN + b"\ty\nb\n\tz\nb\ty\n")
    dropped = DroppedLines()
    assert [item.label for item in read_labeled(path, dropped)] == ["a", "b"]
    assert {reason: first.line for reason, first in dropped.items()} == {
        "not UTF-8": 2,
        "not label TAB text [TAB second text]": 3,
        "an empty label or text": 4,
    }
    with pytest.raises(DataError, match=f"line 2 of {path} is not UTF-8"):
        read_labeled(path)


def test_a_strict_corpus_has_no_bad_line(tmp_path: Path) -> None:
    line_files(tmp_path)  # which is not used again by one that is strict
    with pytest.raises(DataError, match=f"line 321 of {tmp_path / 'a.en'} is not UTF-8 .*; save the file as UTF-8, or"):
        line_files(tmp_path, strict=True)
    requested = settings.load_config(None, ["data.strict=true"], data={"text": tmp_path / "a.en"})
    with pytest.raises(DataError, match=f"line 321 of {tmp_path / 'a.en'} is not UTF-8"):
        prepare_text(requested, tmp_path / "cache")


def test_a_file_of_bad_lines_alone_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("one\ntwo\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"of 2 read, 2 dropped: no TAB \(first: line 1 of .*\); check .* TAB target\."):
        prepare_parallel(config(pairs=path), tmp_path / "cache")
    path.write_text("one\ttwo\n", encoding="utf-16-le")
    with pytest.raises(DataError, match=r"no pair of .* is left .*UTF-16"):
        prepare_parallel(config(pairs=path), tmp_path / "cache")
    with pytest.raises(DataError, match=r"holds no text, .*UTF-16.*; give a file of UTF-8 text"):
        prepare_text(settings.load_config(None, (), data={"text": path}), tmp_path / "cache")
