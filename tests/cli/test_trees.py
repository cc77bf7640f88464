"""Dependency trees beside text: the share of sentences with a tree is printed, and trees of other text are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from heedful.storage.folder import save_folder
from tests.cli.conftest import Call, training
from tests.inside.conftest import make_folder, tokenizer

__all__ = ["make_folder", "tokenizer"]


def conllu(*sentences: str) -> str:
    """Trees in which the first word is the root and the head of all others."""
    rows = [
        "".join(f"{i}\t{word}\t_\t_\t_\t_\t{int(i > 1)}\t_\t_\t_\n" for i, word in enumerate(sentence.split(), 1))
        for sentence in sentences
    ]
    return "\n".join(rows)


@pytest.fixture(scope="module")
def files(make_folder, tmp_path_factory) -> Path:
    """A model with syntax positions, two sentences, and trees of both, one and none of them."""
    path = tmp_path_factory.mktemp("trees")
    folder = make_folder(positions="syntax")
    folder.path = path / "model"
    save_folder(folder)
    (path / "a.en").write_text("The old man sleeps.\nShe reads.\n", encoding="utf-8")
    (path / "a.de").write_text("Der alte Mann schläft.\nSie liest.\n", encoding="utf-8")
    (path / "both.conllu").write_text(conllu("The old man sleeps .", "She reads ."), encoding="utf-8")
    (path / "one.conllu").write_text(conllu("She reads ."), encoding="utf-8")
    (path / "none.conllu").write_text(conllu("She sleeps ."), encoding="utf-8")
    return path


def command(name: str, files: Path, out: Path) -> list[object]:
    source, target, reference = (
        ["--source", files / "a.en"],
        ["--target", files / "a.de"],
        ["--reference", files / "a.de"],
    )
    return {
        "translate": ["translate", files / "model", "--input", files / "a.en"],
        "evaluate": ["evaluate", files / "model", *source, *reference],
        "score": ["score", files / "model", *source, *target],
        "explain": ["explain", files / "model", "She reads.", "--out", out / "x.html"],
    }[name]


@pytest.mark.parametrize("name", ["translate", "evaluate", "score", "explain"])
def test_every_command_takes_trees_and_refuses_those_of_other_text(call: Call, files: Path, tmp_path: Path, name: str):
    words = command(name, files, tmp_path)
    both = call(*words, "--trees", files / "both.conllu")
    assert both.code == 0, both.err
    assert "100.0 % of the sentences have a dependency tree" in both.err
    none = call(*words, "--trees", files / "none.conllu")
    assert none.code == 2
    assert "no sentence has a dependency tree in" in none.err and "none.conllu" in none.err
    without = call(*words)
    assert without.code == 0
    assert "was trained with dependency trees and gets none here" in without.err


def test_a_command_without_trees_warns(call: Call, files: Path):
    done = call("align", files / "model", "--source", files / "a.en", "--target", files / "a.de")
    assert done.code == 0
    assert "was trained with dependency trees and gets none here" in done.err


def test_a_sentence_without_a_tree_is_counted(call: Call, files: Path):
    done = call("translate", files / "model", "--input", files / "a.en", "--trees", files / "one.conllu")
    assert (done.code, len(done.out.splitlines())) == (0, 2)
    assert "50.0 % of the sentences have a dependency tree" in done.err


def test_training_refuses_trees_of_other_text_before_anything_is_written(
    call: Call, corpus: Path, files: Path, tmp_path: Path
):
    syntax = ["model.positions=syntax", f"data.trees={files / 'none.conllu'}"]
    done = call(*training(corpus, tmp_path / "x"), *syntax)
    assert done.code == 2
    assert "no sentence has a dependency tree in" in " ".join(done.err.split())
    assert not (tmp_path / "x").exists()
    done = call(*training(corpus, tmp_path / "x"), syntax[1])
    assert done.code == 2
    assert "data.trees has no effect with sinusoidal positions" in " ".join(done.err.split())
