"""From a translation memory to a translated catalog: the commands that a translator types."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import polib
import pytest

from heedful.inference import file_translation
from heedful.inference.confidence import CONFIDENCE_FILE
from tests.conftest import TINY
from tests.formats.judges import check_with_msgfmt, without_targets
from tests.formats.test_documents import PO
from tests.formats.test_pair_files import XLIFF_2, tmx

from .conftest import Call, run_here


@pytest.fixture(scope="module")
def engine(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model trained on a translation memory of the demo grammar."""
    folder = tmp_path_factory.mktemp("memory")
    sides = [(corpus / f"train.{code}").read_text(encoding="utf-8").splitlines() for code in ("en", "de")]
    rows = [{"en-US": a, "de-DE": b} for a, b in zip(*sides, strict=True)]
    (folder / "memory.tmx").write_bytes(tmx([*rows, {"en-US": "alone", "fr": "seul"}], "en-US"))
    words = ["--pairs", folder / "memory.tmx", "--source-language", "en", "--target-language", "de"]
    done = run_here("train", *TINY, "train.max_updates=12", *words, "--out", folder / "run")
    assert done.code == 0, done.err
    report = done.out + done.err
    assert "(TMX, en-us to de-de)" in report
    assert "1 dropped: no segment in 'de-de'" in report
    assert "alone" in report
    return folder / "run"


def test_a_catalog_is_translated(call: Call, engine: Path, tmp_path: Path) -> None:
    source, target = tmp_path / "app.po", tmp_path / "app.de.po"
    source.write_text(PO, encoding="utf-8")
    done = call("translate", engine, "--input", source, "--output", target)
    assert done.code == 0, done.err
    assert f"{target}: 3 of 4 segments translated" in done.err
    before, after = polib.pofile(PO), polib.pofile(str(target))
    assert [entry.msgid for entry in after] == [entry.msgid for entry in before]
    assert all(entry.msgstr or all(entry.msgstr_plural.values()) for entry in after)
    assert after[2].msgstr == "fertig"
    check_with_msgfmt(target)
    assert "no calibration" in call("translate", engine, "-i", source, "-o", target, "--review-below", "0.5").err
    curve = {"inputs": [-9, 0], "outputs": [0.1, 0.9]}
    calibrated = shutil.copytree(engine, tmp_path / "calibrated")
    (calibrated / CONFIDENCE_FILE).write_text(json.dumps({"words": curve, "sentences": curve}), encoding="utf-8")
    for least, fuzzy in (("0", 0), ("1", 2)):  # entries, one with a plural
        reviewed = call("translate", calibrated, "-i", source, "-o", tmp_path / "c.po", "--review-below", least)
        assert ("3 to be checked, with a confidence below 1" in reviewed.err) == bool(fuzzy)
        assert sum(entry.fuzzy for entry in polib.pofile(str(tmp_path / "c.po"))) == fuzzy
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []
    again = call("translate", engine, "--input", target, "--output", tmp_path / "b.po", "--only-missing")
    assert "0 of 4 segments translated" in again.err
    assert (tmp_path / "b.po").read_bytes() == target.read_bytes()


def test_inline_tags_occur_once(call: Call, engine: Path, tmp_path: Path) -> None:
    source, target = tmp_path / "a.xlf", tmp_path / "b.xlf"
    source.write_text(XLIFF_2, encoding="utf-8")
    assert call("translate", engine, "--input", source, "--output", target, "--overwrite").code == 0
    assert without_targets(target.read_bytes()) == without_targets(source.read_bytes())
    written = target.read_text(encoding="utf-8").partition("<target>m</target>")[2]
    for markup in ('<pc id="1">', "</pc>", '<sc id="2"/>', '<ec startRef="2"/>'):
        assert written.count(markup) == 2


def test_an_interrupted_file_is_resumed(
    call: Call, engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "a.txt", tmp_path / "b.txt"
    source.write_text("".join(f"line number {n}\n" for n in range(9)), encoding="utf-8")
    words = ["translate", engine, "--input", source, "--format", "text", "--output"]
    assert call(*words, tmp_path / "whole.txt").code == 0
    add, added = file_translation.SavedTranslations.add, []

    def stop(self: file_translation.SavedTranslations, number: int, sentences: list[dict[str, object]]) -> None:
        if len(added) == 4:
            raise KeyboardInterrupt
        add(self, number, sentences)
        added.append(number)

    monkeypatch.setattr(file_translation.SavedTranslations, "add", stop)
    assert call(*words, target).code == 130
    assert not target.exists()
    partial = target.with_name("b.txt.partial")
    assert len(partial.read_text(encoding="utf-8").splitlines()) == 5
    with partial.open("a", encoding="utf-8") as file:
        file.write('[7, [{"te')  # cut off
    monkeypatch.setattr(file_translation.SavedTranslations, "add", add)
    done = call(*words, target)
    assert "9 of 9 segments translated, 4 of them by an earlier command" in done.err
    assert target.read_bytes() == (tmp_path / "whole.txt").read_bytes()
    assert not partial.exists()


def test_saved_translations_of_another_file_are_not_used(call: Call, engine: Path, tmp_path: Path) -> None:
    (tmp_path / "b.txt.partial").write_text(json.dumps("other") + '\n[0, [{"text": "WRONG"}]]\n', encoding="utf-8")
    (tmp_path / "a.txt").write_text("a dog\n", encoding="utf-8")
    words = ["translate", engine, "--format", "text", "--input", tmp_path / "a.txt", "--output", tmp_path / "b.txt"]
    assert call(*words).code == 0
    assert "WRONG" not in (tmp_path / "b.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "content", "options", "sentence"),
    [
        ("a.po", 'msgid "a" b"\n', [], "line 1 of "),
        ("a.po", PO, ["--n-best", 2, "--scores"], "--n-best and --scores have no effect on "),
        ("a.po", PO, ["--only-missing", "--overwrite"], "give one of them"),
        ("a.xlf", "<xliff><file>", [], "is not well-formed XML"),
        ("a.xlf", "<other/>", [], "not an XLIFF file"),
        ("a.json", "{", [], "is not valid JSON"),
        ("a.csv", "a,b\n", ["--column", "c"], "give the column"),
        ("a.md", "x", ["--format", "docx"], "the format is 'docx'; it must be auto, po, "),
    ],
)
def test_wrong_files_are_refused_in_one_sentence(
    call: Call, engine: Path, tmp_path: Path, name: str, content: str, options: list[object], sentence: str
) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    words = ["translate", engine, "--input", tmp_path / name, "--output", tmp_path / "out", *options]
    done = call(*words)
    assert done.code == 2
    assert sentence in done.err
    assert done.err.startswith("error: ")
    assert not (tmp_path / "out").exists()


def test_a_file_needs_an_output(call: Call, engine: Path, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("a dog", encoding="utf-8")
    assert "name the new file with --output" in call("translate", engine, "--input", tmp_path / "a.md").err
    same = call("translate", engine, "--input", tmp_path / "a.md", "--output", tmp_path / "a.md")
    assert "is both input and output" in same.err


def test_clean_prints_what_each_filter_dropped(call: Call, tmp_path: Path) -> None:
    rows = [{"en": f"the {word} is here", "de": f"{word} ist da"} for word in ("dog", "cat", "bird", "fish")]
    rows += [{"en": "a b c", "de": "a b c"}, {"en": "alone", "fr": "seul"}]
    (tmp_path / "memory.tmx").write_bytes(tmx(rows))
    words = ["clean", tmp_path / "memory.tmx", "--target-language", "de", "--out", tmp_path / "clean.tsv"]
    done = call(*words, "--without", "alignment", "--without", "language")
    assert done.code == 0, done.err
    assert (tmp_path / "clean.tsv").read_text(encoding="utf-8").splitlines() == [
        f"{row['en']}\t{row['de']}" for row in rows[:4]
    ]
    assert "copy" in done.err and "a b c  |  a b c" in done.err and "no segment in 'de'" in done.err
    assert done.err.splitlines()[-1] == "6 pairs read, 4 kept (66.7 %)"
    assert "there is no filter 'spam'" in call(*words, "--without", "spam").err
    assert "does not exist" in call("clean", tmp_path / "none.tmx").err
    assert call("clean", tmp_path / "memory.tmx", "--target-language", "x y").code == 2


@pytest.mark.parametrize("text", ["a dog\na cat\n", ""], ids=["no TAB", "empty"])
def test_clean_refuses_a_file_without_pairs_in_one_sentence(call: Call, tmp_path: Path, text: str) -> None:
    (tmp_path / "lines.txt").write_text(text, encoding="utf-8")
    (tmp_path / "clean.tsv").write_text("as before", encoding="utf-8")
    done = call("clean", tmp_path / "lines.txt", "--out", tmp_path / "clean.tsv")
    assert done.code == 2 and len(done.err.splitlines()) == 1
    assert "lines.txt has no pairs" in done.err and "source TAB target" in done.err
    assert ("(line 1: no TAB)" in done.err) == bool(text)
    assert (tmp_path / "clean.tsv").read_text(encoding="utf-8") == "as before"


def test_clean_says_that_the_filters_dropped_everything(call: Call, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("a dog sleeps\tein Hund\n", encoding="utf-8")
    done = call("clean", tmp_path / "pairs.tsv", "--max-words", "1")
    assert done.code == 2 and done.out == ""
    assert done.err.splitlines()[-1].startswith("error: the filters dropped all 1 pairs of")
    assert "a dog sleeps  |  ein Hund" in done.err
