"""Lines as they are written: nothing but a line feed ends one, and every fault is told with its place."""

import gzip
import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heedful.errors import DataError, SettingError
from heedful.formats.line_files import ParallelFiles, decode_lines, read_lines, read_pairs, read_tsv
from heedful.formats.pair_files import training_corpus, validation_corpus

from ..data.files import config, told, write, write_gz

ODD = "a\u2028b\x85c\x0bd\x0ce\x1cf\x1dg\u2029h\ri"

LINES = st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\0\ufeff"), max_size=20))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LINES, st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_lines_come_back_as_written(
    tmp_path: Path, lines: list[str], packed: bool, windows: bool, bom: bool, last: bool
) -> None:
    if windows or not last:
        lines = [line.rstrip("\r") for line in lines]
    elif any(line.endswith("\r") for line in lines):
        return
    end = "\r\n" if windows else "\n"
    content = "\ufeff" * bom + "".join(line + end for line in lines)
    if not last and lines and lines[-1]:
        content = content.removesuffix(end)
    path = (write_gz if packed else write)(tmp_path / "corpus.txt", content)
    assert list(read_lines(path)) == lines


def test_odd_separators_do_not_shift_pairs(tmp_path: Path) -> None:
    source = write(tmp_path / "s", f"one\n{ODD}\nthree\n")
    target = write(tmp_path / "t", "eins\nzwei\ndrei\n")
    assert list(read_pairs(source, target)) == [("one", "eins"), (ODD, "zwei"), ("three", "drei")]
    tsv = write(tmp_path / "p", f"one\teins\n{ODD}\tzwei\nthree\tdrei")
    assert list(read_tsv(tsv)) == [("one", "eins"), (ODD, "zwei"), ("three", "drei")]


def test_compression_is_recognized_by_content_not_by_name(tmp_path: Path) -> None:
    assert list(read_lines(write_gz(tmp_path / "a.txt", "ä\nb\n"))) == ["ä", "b"]
    assert list(read_lines(write(tmp_path / "b.gz", "ä\nb\n"))) == ["ä", "b"]
    twice = gzip.compress(b"a\n") + gzip.compress(b"b\n")  # as cat a.gz b.gz makes it
    assert list(read_lines(write(tmp_path / "c.gz", twice))) == ["a", "b"]


def test_an_empty_file_has_no_lines_and_a_bom_is_no_text(tmp_path: Path) -> None:
    assert list(read_lines(write(tmp_path / "a", b""))) == []
    assert list(read_lines(write(tmp_path / "b", b"\xef\xbb\xbfa\n\xef\xbb\xbfb"))) == ["a", "\ufeffb"]
    assert list(read_lines(write(tmp_path / "c", b"\n\n"))) == ["", ""]


def test_standard_input_is_named_in_messages() -> None:
    assert list(decode_lines([b"\xef\xbb\xbfa\r\n", b"b"], "standard input")) == ["a", "b"]
    with pytest.raises(DataError) as caught:
        list(decode_lines([b"a\n", b"\xff"], "standard input"))
    told(caught, "line 2 of standard input is not UTF-8")


def test_invalid_utf8_is_reported_with_its_line(tmp_path: Path) -> None:
    path = write(tmp_path / "latin.txt", "gut\nsch\xf6n\n".encode("latin-1"))
    lines = read_lines(path)
    assert next(lines) == "gut"
    with pytest.raises(DataError) as caught:
        next(lines)
    told(caught, "line 2 of", path, "not UTF-8", "0xf6", "position 4", "save the file as UTF-8")


@pytest.mark.parametrize("content", [b"a\nb\0c\n", "ab\ncd\n".encode("utf-16")])
def test_nul_characters_are_reported(tmp_path: Path, content: bytes) -> None:
    path = write(tmp_path / "binary.txt", content)
    with pytest.raises(DataError) as caught:
        list(read_lines(path))
    told(caught, "line ", path, "NUL", "UTF-16")


def test_files_that_cannot_be_read_are_reported(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        list(read_lines(tmp_path / "nowhere"))
    told(caught, tmp_path / "nowhere", "does not exist")
    with pytest.raises(DataError) as caught:
        list(read_lines(tmp_path))
    told(caught, tmp_path, "is a folder")
    path = write(tmp_path / "closed", "a")
    path.chmod(0)
    if not os.access(path, os.R_OK):
        with pytest.raises(DataError) as caught:
            list(read_lines(path))
        told(caught, path, "cannot be read")


def test_damaged_gzip_is_reported(tmp_path: Path) -> None:
    whole = gzip.compress(("line\n" * 1000 + "end").encode())
    with pytest.raises(DataError) as caught:
        list(read_lines(write(tmp_path / "cut.gz", whole[:-12])))
    told(caught, tmp_path / "cut.gz", "ends in the middle")
    with pytest.raises(DataError) as caught:
        list(read_lines(write(tmp_path / "bad.gz", whole[:12] + b"\xff\xff\xff" + whole[15:])))
    told(caught, tmp_path / "bad.gz", "damaged compressed data")


@pytest.mark.parametrize(("source_lines", "target_lines"), [(3, 5), (5, 3), (0, 2), (2, 0)])
def test_files_of_different_length_are_reported_with_both_counts(
    tmp_path: Path, source_lines: int, target_lines: int
) -> None:
    source = write(tmp_path / "source.txt", "x\n" * source_lines)
    target = write(tmp_path / "target.txt", "y\n" * target_lines)
    with pytest.raises(DataError) as caught:
        list(read_pairs(source, target))
    told(caught, f"{source} has {source_lines} lines", f"{target} has {target_lines}")


def test_tsv_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "a\tb\nc\td\te\tf\n\t\n")
    notes = Counter[str]()
    assert list(read_tsv(path, notes)) == [("a", "b"), ("c", "d"), ("", "")]
    assert notes == {"extra columns": 1}
    with pytest.raises(DataError) as caught:
        list(read_tsv(write(tmp_path / "b.tsv", "a\tb\nc d\n")))
    told(caught, "line 2 of", tmp_path / "b.tsv", "no TAB")


def test_reading_stops_early_without_a_complaint(tmp_path: Path) -> None:
    lines = read_lines(write(tmp_path / "a", "a\nb\n"))
    assert next(lines) == "a"
    lines.close()  # type: ignore[attr-defined]


def test_settings_name_a_corpus() -> None:
    assert training_corpus(config(source="a", target="b").data) == ParallelFiles(Path("a"), Path("b"))
    assert training_corpus(config(pairs="c").data) == ParallelFiles(Path("c"))
    assert validation_corpus(config(pairs="c").data) is None
    assert validation_corpus(config(valid_pairs="d").data) == ParallelFiles(Path("d"))
    assert validation_corpus(config(valid_source="d", valid_target="e").data) == ParallelFiles(Path("d"), Path("e"))
    assert str(ParallelFiles(Path("d"), Path("e"))) == "d and e"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({}, ["no corpus is given"]),
        ({"source": "a"}, ["source (a)", "without target"]),
        ({"target": "a"}, ["target (a)", "without source"]),
        ({"pairs": "p", "source": "a"}, ["pairs (p)", "source (a)"]),
        ({"pairs": "p", "target": "a"}, ["pairs (p)", "target (a)"]),
        ({"pairs": "p", "valid_source": "a"}, ["valid_source (a)", "without valid_target"]),
        ({"pairs": "p", "valid_pairs": "v", "valid_target": "a"}, ["valid_pairs (v)", "valid_target (a)"]),
    ],
)
def test_settings_that_contradict_are_reported(data: dict[str, object], words: list[str]) -> None:
    with pytest.raises(SettingError) as caught:
        settings_of = config(**data).data
        training_corpus(settings_of)
        validation_corpus(settings_of)
    told(caught, *words)
