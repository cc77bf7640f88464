"""The commands, as far as a process is not needed to know that they work."""

from __future__ import annotations

import json

import pytest

from heedful.folder import save
from tests.cli.conftest import Call, call

__all__ = ["call"]

SOURCE = "The old man sleeps.\nShe reads.\n\nI know it.\n"
TARGET = "Der alte Mann schläft.\nSie liest.\nNichts.\nIch weiß es.\n"


@pytest.fixture(scope="module")
def model(make_folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("cli")
    folder = make_folder()
    folder.path = path / "model"
    save(folder)
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


def test_explain_says_what_is_wrong(call: Call, model, tmp_path):
    assert call("explain", model / "model", " ").err == "error: the text is empty; give a sentence to look at.\n"
    done = call("explain", tmp_path / "none", "x")
    assert done.code == 2
    assert "does not exist" in done.err
    done = call("explain", model / "model", "x", "--svg", tmp_path / "x.svg", "--picture", "cross")
    assert "'cross' is no attention of this model" in done.err


def test_align_prints_a_line_for_each_pair(call: Call, model, tmp_path):
    files = ["--source", model / "a.en", "--target", model / "a.de"]
    done = call("align", model / "model", *files)
    lines = done.out.split("\n")
    assert len(lines) == 5
    assert lines[2] == lines[4] == ""
    assert all(all(part.replace("-", "").isdigit() for part in line.split()) for line in lines)
    assert done.err.startswith("read off decoder.")
    both = call("align", model / "model", *files, "--reverse", model / "model", "--marks", "--out", tmp_path / "x")
    assert both.code == 0
    assert len((tmp_path / "x").read_text().splitlines()) == 4
    one = call("align", model / "model", *files, "--heads", "decoder.0.cross.1")
    assert one.err == "read off decoder.0.cross.1\n"
    wrong = call("align", model / "model", *files, "--heads", "encoder.0.self.1")
    assert "encoder.0.self.1 is no head of cross-attention" in wrong.err


def test_heads_prints_them_in_order(call: Call, model, tmp_path):
    files = ["--source", model / "a.en", "--reference", model / "a.de"]
    done = call("heads", model / "model", *files, "--svg", tmp_path / "x.svg")
    lines = done.out.splitlines()
    assert lines[0].startswith("whole model")
    rises = [float(line.split()[2]) for line in lines[1:]]
    assert rises == sorted(rises, reverse=True)
    assert len(rises) == 24
    assert (tmp_path / "x.svg").exists()
    numbers = json.loads(call("heads", model / "model", *files, "--json", "--lines", "1").out)
    assert len(numbers["heads"]) == 24
    assert "a translator is measured against references" in call("heads", model / "model", *files[:2]).err


@pytest.mark.parametrize("command", ["explain", "align", "heads"])
def test_help_is_there(call: Call, command):
    done = call(command, "--help")
    assert done.code == 0
    assert "For example: heedful" in done.out
