"""`heedful shortlist`, and --shortlist of the commands that translate."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.cli.test_errors import assert_one_sentence


@pytest.fixture
def model(call: Call, trained: Path, corpus: Path, tmp_path: Path) -> Path:
    copied = tmp_path / "model"
    shutil.copytree(trained, copied)
    done = call("shortlist", copied, "--source", corpus / "train.en", "--target", corpus / "train.de")
    assert done.code == 0, done.err
    assert "tokens to choose from" in done.out and done.out.count("\n") == 1
    return copied


def test_commands_use_the_shortlist_and_a_quantized_model_keeps_it(
    call: Call, model: Path, corpus: Path, tmp_path: Path
) -> None:
    words = ["-i", corpus / "valid.en", "--scores"]
    short, free = call("translate", model, *words, "--shortlist"), call("translate", model, *words)
    assert short.code == 0 and short.out.count("\n") == 20, short.err
    assert short.out != free.out  # at least the scores, which are normalised over fewer tokens
    done = call("evaluate", model, "--source", corpus / "valid.en", "--reference", corpus / "valid.de", "--shortlist")
    assert done.code == 0 and "shortlist" in done.out, done.err
    assert call("quantize", model, "--out", tmp_path / "small").code == 0
    small = call("translate", tmp_path / "small", *words, "--shortlist", "--precision", "float32")
    assert small.code == 0 and small.out.count("\n") == 20, small.err


def test_missing_shortlists_and_pairs_are_one_sentence(call: Call, trained: Path, corpus: Path, tmp_path: Path) -> None:
    done = call("translate", trained, "-i", corpus / "valid.en", "--shortlist")
    assert_one_sentence(done.err, "has no shortlist; build one with `heedful shortlist")
    (tmp_path / "empty").write_text("\n\n")
    done = call("shortlist", trained, "--source", tmp_path / "empty", "--target", tmp_path / "empty")
    assert_one_sentence(done.err, "a shortlist cannot be built")
    done = call("shortlist", trained, "--source", corpus / "train.en", "--target", corpus / "valid.de")
    assert_one_sentence(done.err, "lines but")
