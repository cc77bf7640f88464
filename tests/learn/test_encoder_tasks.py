"""Regression, tagging, question answering and similarity must be learned: from nothing, or from a BERT."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

import heedful
from heedful.inference.encoder import Encoder

pytestmark = pytest.mark.slow

SMALL = {"d_model": 32, "d_ff": 64, "n_heads": 2, "encoder_layers": 2, "dropout": 0.0}
QUICK = {"checkpoint_every": 100, "learning_rate": 5e-3, "warmup": 20, "batch_tokens": 768}
PEOPLE, PLACES = ["Anna", "Ben", "Clara", "Dora", "Emil"], ["Rome", "Oslo", "Paris", "Lima", "Cairo"]
VERBS = ["lives in", "drives to", "writes from", "thinks of"]


def sentence(draw: random.Random) -> tuple[str, str, str]:
    return draw.choice(PEOPLE), draw.choice(VERBS), draw.choice(PLACES)


def test_a_tagger_finds_names(tmp_path: Path) -> None:
    draw, lines = random.Random(1), []
    for _ in range(250):
        person, verb, place = sentence(draw)
        lines += [f"{person} B-PER", *(f"{word} O" for word in verb.split()), f"{place} B-LOC", "city I-LOC", ""]
    (tmp_path / "train.conll").write_text("\n".join(lines), encoding="utf-8")
    tagger = heedful.train(
        labeled=tmp_path / "train.conll", task="tagging", out=tmp_path / "run", model=SMALL,
        train=QUICK | {"max_updates": 100},
    )  # fmt: skip
    assert isinstance(tagger, Encoder)
    (words,) = tagger.tag(["Dora writes from Lima city"])
    assert [word.tag for word in words] == ["B-PER", "O", "O", "B-LOC", "I-LOC"]
    assert all(word.probability > 0.5 for word in words)
    long = tagger.tag(["Anna drives to Rome city " * 200])[0]
    assert [word.word for word in long] == ["Anna", "drives", "to", "Rome", "city"] * 200, "in windows, none is lost"
    assert tagger.tag(["", ["Ben"]])[0] == []


def passages(count: int, seed: int) -> dict[str, object]:
    draw, paragraphs = random.Random(seed), []
    for number in range(count):
        people, places = draw.sample(PEOPLE, 3), draw.choices(PLACES, k=2)
        facts = [f"{person} lives in {place}." for person, place in zip(people, places, strict=False)]
        context, questions = " ".join(facts), []
        for index, person in enumerate(people):
            answers = []
            if index < 2:
                answers = [
                    {
                        "text": places[index],
                        "answer_start": context.index(facts[index]) + facts[index].index(places[index]),
                    }
                ]
            row = {"id": f"{number}.{index}", "question": f"Where does {person} live?", "answers": answers}
            questions.append(row | {"is_impossible": not answers})
        paragraphs.append({"context": context, "qas": questions})
    return {"data": [{"paragraphs": paragraphs}]}


@pytest.mark.long
def test_questions_are_answered_or_not(tmp_path: Path) -> None:
    (tmp_path / "train.json").write_text(json.dumps(passages(500, 1)), encoding="utf-8")
    reader = heedful.train(
        labeled=tmp_path / "train.json", task="question-answering", out=tmp_path / "run",
        model=SMALL | {"d_model": 64, "d_ff": 128}, train=QUICK | {"max_updates": 600, "learning_rate": 3e-3},
    )  # fmt: skip
    assert isinstance(reader, Encoder)
    context = "Ben lives in Lima. Clara lives in Oslo."
    answer = reader.answer("Where does Clara live?", context)
    assert (answer.text, context[answer.start : answer.end]) == ("Oslo", "Oslo")
    assert reader.answer("Where does Emil live?", context).text == ""
    assert reader.answer("Where does Emil live?", context, allow_empty=False).text in ("Lima", "Oslo")


def test_numbers_of_any_size_are_predicted(tmp_path: Path) -> None:
    draw, rows = random.Random(2), []
    for _ in range(300):
        words = [draw.choice(["good", "bad", "house", "tree"]) for _ in range(draw.randrange(3, 8))]
        rows.append((str(5000 + 1000 * (words.count("good") - words.count("bad")) / len(words)), " ".join(words)))
    model = heedful.train(
        labeled=rows, task="regression", out=tmp_path / "run", model=SMALL, train=QUICK | {"max_updates": 100}
    )
    assert isinstance(model, Encoder)
    texts = ["good good good house", "house tree house", "bad bad tree bad"]
    best, middle, worst = model.score(texts)
    assert 5300 < best < 7000 and 4700 < middle < 5300 and 3000 < worst < 4700
    again = heedful.train(
        labeled=rows[:20], task="regression", init=tmp_path / "run", out=tmp_path / "again", train={"max_updates": 1}
    )
    assert isinstance(again, Encoder) and again.score(texts) == pytest.approx([best, middle, worst], abs=100)


def test_paraphrases_are_embedded_near_each_other(tmp_path: Path) -> None:
    rows = [(f"{p} {v} {q}", f"to {q} {v.split()[0]} now {p}") for p in PEOPLE for v in VERBS for q in PLACES]
    scored = [
        ("1", "Anna lives in Rome", "to Rome lives now Anna"),
        ("0", "Anna lives in Rome", "to Lima drives now Ben"),
    ]
    model = heedful.train(
        pairs=rows, valid_labeled=scored, task="similarity", out=tmp_path / "run", model=SMALL,
        train=QUICK | {"max_updates": 60, "checkpoint_every": 60},
    )  # fmt: skip
    assert isinstance(model, Encoder)
    first, same, other = model.embed(["Clara drives to Oslo", "to Oslo drives now Clara", "to Paris thinks now Emil"])
    assert first @ same > first @ other
    metrics = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert any(record.get("valid_spearman") == pytest.approx(100) for record in metrics)


def test_similarity_is_learned_without_given_similarities(tmp_path: Path) -> None:
    rows = [(f"{p} {v}", f"{v} {p}") for p in PEOPLE for v in VERBS]
    heedful.train(
        pairs=rows, task="similarity", out=tmp_path / "run", model=SMALL | {"encoder_layers": 1},
        train=QUICK | {"max_updates": 2, "checkpoint_every": 1},
    )  # fmt: skip
    assert "partner is nearest" in (card := (tmp_path / "run/README.md").read_text()) and "Spearman" not in card
