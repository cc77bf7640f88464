"""The commands, as far as a process is not needed to know that they work."""

from __future__ import annotations

import json

import pytest

from heedful.storage.folder import save_folder
from tests.cli.conftest import Call, call

__all__ = ["call"]

SOURCE = "The old man sleeps.\nShe reads.\n\nI know it.\n"
TARGET = "Der alte Mann schläft.\nSie liest.\nNichts.\nIch weiß es.\n"


@pytest.fixture(scope="module")
def model(make_folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("cli")
    folder = make_folder()
    folder.path = path / "model"
    save_folder(folder)
    (path / "a.en").write_text(SOURCE, encoding="utf-8")
    (path / "a.de").write_text(TARGET, encoding="utf-8")
    return path


def test_explain_writes_what_is_asked_for(call: Call, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = call("explain", model / "model", "She reads.")
    assert done.code == 0
    assert done.err == "wrote explain.html\n"
    assert done.out.strip()
    assert (tmp_path / "explain.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    done = call(
        "explain", model / "model", "She reads.", "--json", "x.json", "--png", "x.png", "--target", "Sie liest."
    )
    assert (done.code, done.out) == (0, "Sie liest.\n")
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))["output"] == "Sie liest."
    assert sorted(path.name for path in tmp_path.iterdir()) == ["explain.html", "x.json", "x.png"]


def test_align_prints_a_line_for_each_pair(call: Call, model, tmp_path):
    files = ["--source", model / "a.en", "--target", model / "a.de"]
    done = call("align", model / "model", *files)
    lines = done.out.split("\n")
    assert len(lines) == 5
    assert lines[2] == lines[4] == ""
    assert all(all(part.replace("-", "").isdigit() for part in line.split()) for line in lines)
    assert done.err.startswith("aligned by the heads decoder.")
    both = call("align", model / "model", *files, "--reverse", model / "model", "--marks", "--out", tmp_path / "x")
    assert both.code == 0
    assert len((tmp_path / "x").read_text().splitlines()) == 4
    one = call("align", model / "model", *files, "--heads", "decoder.0.cross.1")
    assert one.err == "aligned by the heads decoder.0.cross.1\n"


def test_heads_prints_them_in_order(call: Call, model, tmp_path):
    files = ["--source", model / "a.en", "--reference", model / "a.de"]
    done = call("heads", model / "model", *files, "--svg", tmp_path / "x.svg")
    lines = done.out.splitlines()
    assert lines[0].startswith("all heads")
    rises = [float(line.split()[2]) for line in lines[1:]]
    assert rises == sorted(rises, reverse=True)
    assert len(rises) == 24
    assert (tmp_path / "x.svg").exists()
    numbers = json.loads(call("heads", model / "model", *files, "--json", "--lines", "1").out)
    assert len(numbers["heads"]) == 24


FILES = ["--source", "a.en", "--target", "a.de"]
WRONG = [
    (["explain", "model", " "], "the text is empty; give a sentence to look at."),
    (["explain", "none", "x"], "none does not exist"),
    (["explain", "model", "x", "--svg", "x.svg", "--picture", "cross"], "'cross' is no attention of this model; give"),
    (["explain", "model", "x", "--png", "x.gif"], "x.gif ends in .gif; a picture ends in .png, .svg or .pdf."),
    (["explain", "model", "x", "--png", "no/x.png"], "no/x.png could not be written: No such file or directory"),
    (["explain", "model", "x", "--out", "no/x.html"], "no/x.html could not be written: No such file or directory"),
    (["explain", "model", "x", "--json", "no/x.json"], "no/x.json could not be written: No such file or directory"),
    (["explain", "model", "x", "--beam", "0"], "search.beam is 0; it must be 1 or more."),
    (["explain", "bert", "x", "--target", "y"], "an encoder generates no text; leave out the target"),
    (
        ["align", "bert", *FILES],
        "bert holds a BERT, which has no cross-attention; use",
    ),
    (["align", "model", *FILES, "--reverse", "none"], "none does not exist"),
    (["align", "model", "--source", "a.en", "--target", "none"], "none does not exist; check the path."),
    (
        ["align", "model", "--source", "a.en", "--target", "one"],
        "a.en has 4 lines but one has 1; line n of one must belong",
    ),
    (
        ["align", "model", *FILES, "--heads", "3"],
        "no cross-attention head 3; an example of one is decoder.0.cross.0.",
    ),
    (["align", "model", *FILES, "--heads", "decoder.9.cross.0"], "has no cross-attention head decoder.9.cross.0;"),
    (["heads", "model", "--source", "a.en"], "a translator is measured against references; give the translation"),
    (
        ["heads", "bert", "--source", "a.en", "--reference", "a.de"],
        "a BERT is measured on its text alone; leave out references",
    ),
    (["heads", "model", "--source", "empty", "--reference", "empty"], "there is nothing to measure on: no line"),
    (["heads", "model", "--source", "a.en", "--reference", "a.de", "--lines", "-1"], "Invalid value for '--lines'"),
]


@pytest.mark.parametrize(("words", "log"), WRONG, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_errors_are_one_sentence(call: Call, model, make_folder, monkeypatch, words, log):
    monkeypatch.chdir(model)
    if "bert" in words and not (model / "bert").exists():
        folder = make_folder("encoder")
        folder.path = model / "bert"
        save_folder(folder)
    (model / "one").write_text("x\n")
    (model / "empty").write_text("\n")
    done = call(*words)
    assert done.code == 2
    assert log in done.err
    assert "Traceback" not in done.err
    assert log.startswith("Invalid") or len(done.err.splitlines()) == 1


@pytest.mark.parametrize("command", ["explain", "align", "heads"])
def test_help_is_there(call: Call, command):
    done = call(command, "--help")
    assert done.code == 0
    assert "For example: heedful" in done.out
