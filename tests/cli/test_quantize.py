"""`heedful quantize`: a smaller folder that every command opens, and that translates as --precision int8 does."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from heedful.native import library
from tests.cli.conftest import Call
from tests.cli.test_errors import assert_one_sentence


def contents(path: Path) -> dict[Path, str]:
    return {item: hashlib.sha256(item.read_bytes()).hexdigest() for item in path.rglob("*") if item.is_file()}


@pytest.fixture
def small(call: Call, trained: Path, tmp_path: Path) -> Path:
    done = call("quantize", trained, "--out", tmp_path / "small")
    assert done.code == 0, done.err
    return tmp_path / "small"


@pytest.mark.skipif(library() is None, reason="there is no compiled engine")
@pytest.mark.parametrize("options", [[], ["--beam", 1], ["--n-best", 2], ["--sample", "--seed", 3], ["--threads", 2]])
def test_a_quantized_folder_translates_as_the_original_in_int8(
    call: Call, trained: Path, small: Path, corpus: Path, options: list[object]
) -> None:
    words = ["-i", corpus / "valid.en", "--scores", *options]
    result, expected = (call("translate", model, *words, "--precision", "int8").out for model in (small, trained))
    assert result == expected != ""
    assert call("translate", small, *words).out == result  # which is what a machine chooses by itself
    assert call("translate", trained, *words, "--precision", "float32").out != result


def test_every_command_opens_a_quantized_folder(call: Call, small: Path, corpus: Path, tmp_path: Path) -> None:
    source, target = corpus / "valid.en", corpus / "valid.de"
    for words in (
        ["evaluate", small, "--source", source, "--reference", target],
        ["score", small, "--source", source, "--target", target],
        ["align", small, "--source", source, "--target", target, "--out", tmp_path / "align"],
        ["explain", small, "The dog sleeps.", "--out", tmp_path / "page.html"],
        ["translate", small, small, "-i", source, "--precision", "float32"],
        ["convert", small, tmp_path / "wide"],
        ["quantize", tmp_path / "wide", "--out", tmp_path / "again"],
    ):
        done = call(*words)
        assert done.code == 0, done.err
    assert (tmp_path / "again/model.safetensors").read_bytes() == (small / "model.safetensors").read_bytes()


def test_the_source_is_unchanged_and_its_card_is_copied(
    call: Call, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(trained)
    out = trained.with_name(f"{trained.name}-int8")  # if nothing is said
    done = call("quantize", f"{trained}/")
    assert done.code == 0, done.err
    assert done.out.startswith(f"{out} holds the model in 0.0 MB instead of ")
    assert contents(trained) == before
    card = (out / "README.md").read_text(encoding="utf-8")
    assert card.startswith((trained / "README.md").read_text(encoding="utf-8")) and "quantized to int8" in card
    monkeypatch.chdir(out)
    done = call("quantize", ".")
    assert done.code == 0
    assert done.out.endswith("holds the model in 0.0 MB instead of 0.0 MB.\n")  # its size as it is, not in float32
    assert (trained.parent / f"{out.name}-int8" / "config.json").exists()


@pytest.mark.parametrize("there", ["a folder", "a file", "the model itself"])
def test_nothing_is_overwritten(call: Call, trained: Path, tmp_path: Path, there: str) -> None:
    out = trained if there == "the model itself" else tmp_path / "out"
    if there == "a folder":
        out.mkdir()
        (out / "mine").write_text("mine")
    elif there == "a file":
        out.write_text("mine")
    before = contents(out) if out.is_dir() else out.read_text()
    done = call("quantize", trained, "--out", out)
    assert done.code == 2
    assert_one_sentence(done.err, f"{out} exists already", "choose a new folder")
    assert (contents(out) if out.is_dir() else out.read_text()) == before


def test_an_error_is_one_sentence_and_leaves_no_folder(
    call: Call, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_one_sentence(call("quantize", tmp_path / "nowhere").err, "nowhere does not exist")
    assert_one_sentence(call("quantize", tmp_path, "--out", tmp_path / "x").err, "is not a model folder")
    assert_one_sentence(call("quantize", trained, "--out", "/proc/nowhere/x").err, "/proc/nowhere/x")

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("heedful.storage.module_weights.save_file", full)
    done = call("quantize", trained, "--out", tmp_path / "x")
    assert done.code == 2
    assert_one_sentence(done.err, "No space left on device")
    assert list(tmp_path.iterdir()) == []
