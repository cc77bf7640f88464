"""`heedful train --text` and `--labeled`, `generate`, `fill`, `embed` and `classify` as a user calls them."""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import heedful
from heedful import demo
from heedful.storage.folder import load_folder, save_folder
from heedful.training.run_report import read_metrics
from tests.cli.conftest import Call, process, run_here

SMALL = [
    "model.d_model=16", "model.d_ff=32", "model.n_heads=2", "model.encoder_layers=1", "model.decoder_layers=1",
    "train.max_updates=4", "train.checkpoint_every=2", "train.batch_tokens=256", "train.block_size=32",
    "train.sample=20",
]  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    lines = [pair.source for pair in demo.generate(80, seed=6)]
    (folder / "a.txt").write_text("\n\n".join(lines[:40]), encoding="utf-8")
    (folder / "b.txt").write_text("\n\n".join(lines[40:]), encoding="utf-8")
    labeled = [f"{'question' if line.endswith('?') else 'other'}\t{line}\n" for line in lines]
    (folder / "train.tsv").write_text("".join(labeled), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def gpt(files: Path) -> Path:
    out = files / "runs/gpt"
    done = process(
        "train", *SMALL, "task=language-model", "--text", files / "a.txt", "--text", files / "b.txt", "--out", out
    )
    assert done.code == 0, done.err
    assert "bits per byte" in done.err
    assert "documents held out from the training data" in done.err
    assert done.err.count("best so far") >= 1
    return out


@pytest.fixture(scope="module")
def bert(files: Path) -> Path:
    out = files / "runs/bert"
    done = run_here("train", *SMALL, "task=masked-lm", "--text", files / "a.txt", "--out", out)
    assert done.code == 0, done.err
    assert "predicted: " in done.err
    return out


@pytest.fixture(scope="module")
def tagger(files: Path, bert: Path) -> Path:
    out = files / "runs/tagger"
    words = ["train.max_updates=4", "train.checkpoint_every=2", "data.valid_size=20"]
    done = run_here("train", *words, "--labeled", files / "train.tsv", "--init", bert, "--out", out)
    assert done.code == 0, done.err
    assert "macro-F1" in done.err
    return out


def test_generate_writes_the_same_text_with_the_same_seed(call: Call, gpt: Path) -> None:
    assert [r["update"] for r in read_metrics(gpt) if "valid_bits_per_byte" in r] == [2, 4]
    first, again, other = (
        call("generate", gpt, "The dog", "--seed", seed, "--max-tokens", 20).out for seed in (1, 1, 2)
    )
    assert first == again != other
    assert first.startswith("The dog")
    assert first.endswith("\n")
    several = call("generate", gpt, "The", "-n", 2, "--max-tokens", 5, "--temperature", 0.5, "--top-k", 3).out
    assert several.startswith("--- 1 ---\nThe")
    assert "--- 2 ---\nThe" in several


def test_words_that_are_not_utf_8_are_replaced(call: Call, gpt: Path, bert: Path) -> None:
    assert "caf\ufffd" in call("generate", gpt, "caf\udce9", "--max-tokens", "1").out
    assert "caf\ufffd" in call("fill-mask", bert, "caf\udce9 [MASK]").out


def test_embeddings_are_compared_with_given_similarities(call: Call, bert: Path, tmp_path: Path) -> None:
    """Against correlations by SciPy's definition, in NumPy."""
    pairs = [("The dog sleeps.", "The dog sleeps."), ("The dog sleeps.", "A dog."), ("No.", "Where is the station?")]
    numbers = [4.0, 2.5, 3.0]
    rows = [f"{number}\t{first}\t{second}\n" for number, (first, second) in zip(numbers, pairs, strict=True)]
    (tmp_path / "scores.tsv").write_text("".join(rows))
    first, second = (heedful.load(bert).embed([pair[side] for pair in pairs]) for side in (0, 1))
    cosines = (first * second).sum(1)
    ranks = cosines.argsort().argsort(), np.array(numbers).argsort().argsort()
    pearson, spearman = (100 * np.corrcoef(*values)[0, 1] for values in ((cosines, numbers), ranks))
    printed = call("embed", bert, "--labeled", tmp_path / "scores.tsv").out.split()
    assert printed[0] == "Pearson" and float(printed[1]) == pytest.approx(pearson, abs=0.01)
    assert printed[6] == "Spearman" and float(printed[7]) == pytest.approx(spearman, abs=0.01)
    (tmp_path / "scores.tsv").write_text("1\talone\n2\ta\tb\n")
    failed = call("embed", bert, "--labeled", tmp_path / "scores.tsv")
    assert failed.code == 2 and "example 1 of" in failed.err and "has no second text" in failed.err


def test_the_prompt_may_come_from_standard_input(gpt: Path) -> None:
    assert process("generate", gpt, "-", "--max-tokens", 3, stdin="Ünd".encode()).out.startswith("Ünd")
    binary = process("generate", gpt, "-", stdin=b"ab\xff")
    assert binary.code == 2
    assert binary.err.strip() == "error: standard input is not UTF-8 (byte 0xff at position 3); give text in UTF-8."


def test_given_validation_text_and_resuming(call: Call, files: Path, tmp_path: Path) -> None:
    words = [
        *SMALL,
        "task=language-model",
        "--text",
        files / "a.txt",
        "--valid-text",
        files / "b.txt",
        "text.kind=characters",
    ]
    done = call("train", *words, "--out", tmp_path / "x")
    assert done.code == 0, done.err
    assert f"documents read from {files / 'b.txt'}" in done.err
    longer = call("train", "train.max_updates=6", "--out", tmp_path / "x", "--resume")
    assert longer.code == 0, longer.err
    assert [r["update"] for r in read_metrics(tmp_path / "x") if "valid_loss" in r] == [2, 4, 6]


def test_fill_mask_prints_candidates(call: Call, bert: Path) -> None:
    done = call("fill-mask", bert, "The [MASK] sleeps.", "--top", 3)
    rows = [line.split("\t") for line in done.out.splitlines()]
    assert len(rows) == 3
    assert all(0 < float(probability) < 1 for probability, _, _ in rows)
    assert all(text == f"The {token} sleeps." for _, token, text in rows)


def test_embed_writes_a_vector_for_each_line(bert: Path, call: Call, tmp_path: Path) -> None:
    done = process_bytes("embed", bert, stdin=b"The dog sleeps.\n\nA cat.\n")
    vectors = np.load(io.BytesIO(done))
    assert vectors.shape == (3, 16)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1, 1], abs=1e-5)
    (tmp_path / "in").write_text("The dog sleeps.\n", encoding="utf-8")
    words = ["embed", bert, "-i", tmp_path / "in", "-o", tmp_path / "v.npy", "--pooling", "first", "--no-normalize"]
    assert call(*words).code == 0
    assert np.load(tmp_path / "v.npy").shape == (1, 16)


def test_similar_prints_the_nearest_lines(bert: Path, call: Call, tmp_path: Path) -> None:
    lines = ["The dog sleeps.", "Does a cat read the letter?", "The old man sees her."]
    (tmp_path / "in").write_text("\n".join(lines), encoding="utf-8")
    assert call("embed", bert, "-i", tmp_path / "in", "-o", tmp_path / "v.npy").code == 0
    rows = [line.split("\t") for line in call("similar", tmp_path / "v.npy", lines[1], "--top", 2).out.splitlines()]
    assert rows[0] == ["1.0000", "2", lines[1]]
    assert len(rows) == 2
    moved, other = tmp_path / "moved", tmp_path / "other"
    shutil.copytree(bert, moved)
    assert call("similar", tmp_path / "v.npy", "x", "--model", moved).err == ""  # the same weights elsewhere
    folder = load_folder(bert)
    with torch.no_grad():
        folder.model.embedding.weight += 1
    save_folder(replace(folder, path=other))
    warned = call("similar", tmp_path / "v.npy", "x", "--model", other)
    assert warned.code == 0
    assert f"v.npy was written with {bert.resolve()}, and the query is embedded with other weights" in warned.err
    note = json.loads((tmp_path / "v.npy.json").read_text())
    (tmp_path / "v.npy.json").write_text(json.dumps(note | {"digest": ""}))  # a folder without digests
    assert "may be another model" in call("similar", tmp_path / "v.npy", "x", "--model", moved).err
    assert call("similar", tmp_path / "v.npy", "x", "--model", bert).err == ""
    (tmp_path / "v.npy.json").unlink()
    assert "give the folder of the encoder as model (`--model`)" in call("similar", tmp_path / "v.npy", "x").err
    assert call("similar", tmp_path / "v.npy", "x", "--model", bert).out.count("\t") == 3
    assert "the query is empty" in call("similar", tmp_path / "v.npy", " ", "--model", bert).err
    (tmp_path / "in").write_text("one line", encoding="utf-8")
    done = call("similar", tmp_path / "v.npy", "x", "--model", bert, "--lines", tmp_path / "in")
    assert "has 1 lines" in done.err


def process_bytes(*words: object, stdin: bytes) -> bytes:
    import os
    import subprocess
    import sys

    command = [sys.executable, "-m", "heedful", *map(str, words)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, input=stdin, capture_output=True, check=True, env=environment).stdout


def test_classify_prints_a_label_for_each_line(call: Call, tagger: Path, files: Path, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("Does the dog sleep?\nThe dog sleeps.\tA cat.\n\n", encoding="utf-8")
    labels = call("classify", tagger, "-i", tmp_path / "in").out.splitlines()
    assert len(labels) == 3
    assert set(labels) <= {"question", "other"}
    scored = call("classify", tagger, "-i", tmp_path / "in", "--scores").out.splitlines()
    assert all(0 < float(line.split("\t")[1]) <= 1 for line in scored)
    measured = call("classify", tagger, "--labeled", files / "train.tsv").out
    assert "accuracy" in measured
    assert "of 80 examples" in measured
    (tmp_path / "other.tsv").write_text("spam\tBuy now!\nham\tSee you.\n")
    failed = call("classify", tagger, "--labeled", tmp_path / "other.tsv")
    assert failed.code == 2 and "the file has 'ham', 'spam', and the model 'other', 'question'" in failed.err


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["generate", "GPT", "x", "--top-p", "3"], "top_p"),
        (["generate", "GPT", "x", "-n", "0"], "--n is 0"),
        (["generate", "BERT", "x"], "does not continue text"),
        (["generate", "nowhere", "x"], "nowhere does not exist"),
        (["fill-mask", "BERT", "no mask"], "there is no mask in 'no mask'; write [MASK]"),
        (["fill-mask", "GPT", "[MASK]"], "which is not an encoder"),
        (["embed", "BERT", "-i", "A", "--pooling", "max", "-o", "v.npy"], "pooling"),
        (["classify", "BERT", "-i", "A"], "was not trained for classification"),
        (["classify", "BERT", "--labeled", "T"], "was not trained for classification"),
        (["translate", "GPT", "-i", "A"], "holds a GPT, which does not translate; use heedful generate."),
        (
            ["evaluate", "BERT", "--source", "A", "--reference", "A"],
            "holds a BERT, which does not translate; use heedful fill-mask or heedful embed.",
        ),
        (["score", "GPT", "--source", "A", "--target", "A"], "use heedful generate."),
        (["shortlist", "BERT", "--source", "A", "--target", "A"], "use heedful fill-mask or heedful embed."),
        (
            ["align", "TAGGER", "--source", "A", "--target", "A"],
            "holds a classifier, which has no cross-attention; use heedful classify or",
        ),
        (["classify", "BERT", "-i", "A"], "use heedful fill-mask or heedful embed, or train a model on labeled data"),
        (["generate", "TRANSLATOR", "x"], "holds a translator, which does not continue text; use heedful translate."),
        (["fill-mask", "TRANSLATOR", "[MASK]"], "holds a translator, which is not an encoder; use heedful translate."),
        (["embed", "TRANSLATOR", "-i", "A"], "holds a translator, which is not an encoder; use heedful translate."),
        (["classify", "TRANSLATOR", "-i", "A"], "holds a translator, which is not an encoder; use heedful translate."),
        (["train", "--task", "language-model", "--text", "nowhere.txt", "--out", "OUT"], "nowhere.txt does not exist"),
        (["train", "--text", "A", "--pairs", "A", "--out", "OUT"], "both given"),
        (["train", "--labeled", "T", "--init", "BERT", "--out", "OUT", "train.rdrop=5"], "is for a translator"),
        (["train", "--labeled", "A", "--init", "BERT", "--out", "OUT"], "label TAB text"),
        (["train", "--task", "tagging", "--labeled", "A", "--out", "OUT", "data.strict=true"], "earlier lines have"),
        (["train", "--task", "regression", "--labeled", "T", "--out", "OUT"], "no number in the first column"),
        (["train", "--task", "question-answering", "--labeled", "T", "--out", "OUT"], "SQuAD's format is"),
        (
            ["train", "--task", "similarity", "--labeled", "T", "--out", "OUT"],
            "labeled text can only train classification or",
        ),
        (["tag", "BERT", "-i", "A"], "was not trained for tagging"),
        (["tag", "TAGGER", "-i", "A"], "holds a classifier, which was not trained for tagging; use heedful classify"),
        (["answer", "BERT", "-q", "Who?", "-i", "A"], "was not trained for question-answering"),
        (["answer", "BERT"], "give --question and a passage"),
        (["similar", "nowhere.npy", "x"], "nowhere.npy does not exist"),
        (["similar", "A", "x"], "is not a NumPy array (.npy); write"),
        (["train", "--labeled", "T", "--init", "GPT", "--out", "OUT"], "decoder family"),
        (["train", "--task", "masked-lm", "--text", "A", "text.vocab_size=90000", "--out", "OUT"], "90000"),
    ],
)
def test_mistakes_are_one_sentence(
    call: Call, files: Path, trained: Path, gpt: Path, bert: Path, tagger: Path, tmp_path: Path,
    words: list[str], part: str,
) -> None:  # fmt: skip
    names = {"GPT": gpt, "BERT": bert, "A": files / "a.txt", "T": files / "train.tsv", "OUT": tmp_path / "out"}
    names |= {"TRANSLATOR": trained, "TAGGER": tagger}
    done = call(*(names.get(word, word) for word in words))
    assert done.code == 2, done.err
    last = done.err.strip().splitlines()[-1]
    assert last.startswith("error: ")
    assert part in last
    assert "Traceback" not in done.err
