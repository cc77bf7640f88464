"""CoNLL and SQuAD files: what is read, what is dropped, what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from heedful.errors import DataError
from heedful.formats.conll import TaggedSentence, read_conll
from heedful.formats.line_files import DroppedLines
from heedful.formats.squad import Question, read_squad


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_conll_of_names_and_of_parts_of_speech(tmp_path: Path) -> None:
    names = "-DOCSTART- -X- O O\n\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\n\n\n# NN O O\nPeter\tNNP\tO\tB-PER\n"
    assert read_conll(written(tmp_path / "ner.conll", names)) == [
        TaggedSentence(("EU", "rejects"), ("B-ORG", "O")),
        TaggedSentence(("Peter",), ("B-PER",)),
    ]
    rows = [
        "# text = vámonos",
        "1-2\tvámonos" + "\t_" * 8,
        "1\tvamos\tir\tVERB" + "\t_" * 6,
        "2\tnos\tyo\tPRON" + "\t_" * 6,
    ]
    treebank = "\n".join([*rows, "2.1\tx\tx\tX" + "\t_" * 6, ""])
    assert read_conll(written(tmp_path / "ud.conllu", treebank)) == [TaggedSentence(("vamos", "nos"), ("VERB", "PRON"))]


def test_a_sentence_with_a_bad_line_is_dropped(tmp_path: Path) -> None:
    path = written(tmp_path / "a.conll", "a O\nword\nb O\n\nc O\n")
    dropped = DroppedLines()
    assert read_conll(path, dropped) == [TaggedSentence(("c",), ("O",))]
    assert dropped.counts() == {"a word without a tag": 1}
    with pytest.raises(DataError, match=r"line 2 of .*a\.conll has one column"):
        read_conll(path)
    with pytest.raises(DataError, match=r"line 2 of .*prose has 2 columns, and earlier lines have 3"):
        read_conll(written(tmp_path / "prose", "A dog sleeps.\nIt barks.\n"))
    with pytest.raises(DataError, match="holds no tagged sentences"):
        read_conll(written(tmp_path / "empty", "\n"))
    with pytest.raises(DataError, match=r"line 1 of .*pairs has the tag 'A dog sleeps\.'; a tag is one word"):
        read_conll(written(tmp_path / "pairs", "yes\tIt barks.\tA dog sleeps.\n"))


def squad(path: Path, *questions: object) -> Path:
    tree = {"version": "v2.0", "data": [{"title": "t", "paragraphs": [{"context": "A dog sleeps.", "qas": questions}]}]}
    return written(path, json.dumps(tree))


def test_questions_of_both_versions(tmp_path: Path) -> None:
    answer = {"text": "dog", "answer_start": 2}
    first = {"id": "1", "question": "Who sleeps?", "answers": [answer, answer]}
    second = {"id": 2, "question": "Who barks?", "answers": [], "is_impossible": True, "plausible_answers": [answer]}
    assert read_squad(squad(tmp_path / "a.json", first, second)) == [
        Question("1", "Who sleeps?", "A dog sleeps.", ((2, "dog"),)),
        Question("2", "Who barks?", "A dog sleeps."),
    ]


def test_questions_that_cannot_be_used(tmp_path: Path) -> None:
    good = {"id": "1", "question": "Who?", "answers": [{"text": "dog", "answer_start": 2}]}
    elsewhere = good | {"answers": [{"text": "dog", "answer_start": 3}]}
    dropped = DroppedLines()
    bad = [elsewhere, {"id": "3", "question": " ", "answers": []}, {"question": "no id"}, "text"]
    assert len(read_squad(squad(tmp_path / "a.json", good, *bad), dropped)) == 1
    assert sum(dropped.counts().values()) == len(bad)
    with pytest.raises(
        DataError, match=r"question 2 of .*a\.json has an answer whose text does not stand at its answer_start"
    ):
        read_squad(tmp_path / "a.json")
    problems = {
        "": "is not JSON (line 1, column 1)", '{"data": [\n{': "is not JSON (line 2, column 2)", "{}": "has no 'data'",
        "[]": "has another structure", '{"data": 3}': "has another structure", '{"data": [{}]}': "has no 'paragraphs'",
    }  # fmt: skip
    for text, what in problems.items():
        with pytest.raises(DataError, match=f"json {re.escape(what)}; SQuAD's format is"):
            read_squad(written(tmp_path / "b.json", text))
    for missing in ("id", "question", "answer_start"):
        lacking = {key: value for key, value in good.items() if key != missing}
        if missing == "answer_start":
            lacking["answers"] = [{"text": "dog"}]
        with pytest.raises(DataError, match=f"question 1 of .* has no '{missing}'; mend or remove it"):
            read_squad(squad(tmp_path / "d.json", lacking))
    with pytest.raises(DataError, match="holds no questions"):
        read_squad(squad(tmp_path / "c.json"))
