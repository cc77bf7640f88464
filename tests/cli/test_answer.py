"""Question answering as a user types it: training from a SQuAD file, answers, and scores of those with and without."""

import json
import re
from pathlib import Path

from .conftest import TINY, Call


def squad(path: Path, count: int) -> Path:
    """A third of the questions has no answer."""
    context = "The dog sleeps."
    answers = [[{"text": "dog", "answer_start": 4}] * (number % 3 > 0) for number in range(count)]
    rows = [{"id": str(n), "question": f"Who sleeps at {n}?", "answers": row} for n, row in enumerate(answers)]
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": context, "qas": [row]} for row in rows]}]}))
    return path


def test_a_model_is_trained_and_answers(tmp_path: Path, call: Call) -> None:
    files = ["--labeled", squad(tmp_path / "train.json", 30), "--valid-labeled", squad(tmp_path / "dev.json", 9)]
    run = tmp_path / "run"
    trained = call("train", "--task", "question-answering", *files, "--out", run, *TINY, "train.max_updates=2")
    assert trained.code == 0, trained.err
    assert "questions without an answer: 10 of those for training" in trained.err
    assert re.search(r"Trained for 2 updates on \d+ examples\.", (run / "README.md").read_text())
    printed = call("answer", run, "--labeled", tmp_path / "dev.json").out.splitlines()
    assert [line.split("of ")[1] for line in printed] == ["9 questions", "6 with an answer", "3 without an answer"]
    (whole, answered, none) = ([float(number) for number in re.findall(r"([\d.]+) %", line)] for line in printed)
    for of_all, of_answered, of_none in zip(whole, answered, none, strict=True):
        assert abs(of_all - (6 * of_answered + 3 * of_none) / 9) < 0.02
    (tmp_path / "empty.txt").write_text(" \n")
    failed = call("answer", run, "-q", "Who?", "-i", tmp_path / "empty.txt")
    assert failed.code == 2 and "the passage is empty" in failed.err
    failed = call("answer", run, "-q", " ", "-i", tmp_path / "dev.json")
    assert failed.code == 2 and "--question is empty" in failed.err
