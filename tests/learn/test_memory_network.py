"""A memory network and a Universal Transformer learn to answer questions about stories, and show what they read."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import heedful
from heedful.inside.explain import explain
from heedful.inside.hops import hop_table, hops, read_hops

PEOPLE = ("Mary", "John", "Sandra", "Daniel", "Bill", "Julie")
PLACES = ("kitchen", "garden", "office", "hallway", "bedroom")
pytestmark = pytest.mark.slow


def story(draw: random.Random) -> str:
    """Two people go somewhere, as a bAbI file tells it, and a question about one of them."""
    people = draw.sample(PEOPLE, 2)
    places = [draw.choice(PLACES) for _ in people]
    person = draw.randrange(2)
    told = [f"{n} {who} went to the {where}." for n, (who, where) in enumerate(zip(people, places, strict=True), 1)]
    return "\n".join([*told, f"3 Where is {people[person]}?\t{places[person]}\t{person + 1}"]) + "\n"


MEMORY_NETWORK = {"architecture": "memory-network", "d_model": 16, "encoder_layers": 2}
UNIVERSAL = {"universal": True, "sentence_input": True, "d_model": 64, "n_heads": 4, "d_ff": 128, "encoder_layers": 2}


@pytest.mark.parametrize(
    ("sizes", "updates", "rate"),
    [(MEMORY_NETWORK, 200, 2e-2), (UNIVERSAL | {"dropout": 0.0}, 300, 5e-3)],
    ids=["memory network", "universal transformer"],
)
def test_it_learns_to_answer_and_reads_the_sentence_that_tells(
    tmp_path: Path, sizes: dict[str, Any], updates: int, rate: float
) -> None:
    draw = random.Random(1)
    (tmp_path / "stories.txt").write_text("".join(story(draw) for _ in range(1000)))
    training = {"max_updates": updates, "batch_tokens": 1024, "learning_rate": rate, "warmup": 10, "threads": 1}
    settings = {f"model.{name}": value for name, value in (sizes | {"max_length": 64}).items()}
    settings |= {f"train.{name}": value for name, value in training.items()}
    stories = tmp_path / "stories.txt"
    classifier = heedful.train(labeled=stories, out=tmp_path / "run", task="classification", **settings)
    text = "John went to the office. Mary went to the garden."
    questions = ["Where is John?", "Where is Mary?"]
    assert [label.label for label in classifier.classify([text] * 2, questions)] == ["office", "garden"]
    for question, place in zip(questions, (0, 1), strict=True):
        run = explain(tmp_path / "run", f"{text}\t{question}").run
        sentences = read_hops(run)
        told = ["John went to the office", "Mary went to the garden"]
        if "universal" in sizes:  # whose question is a sentence as well
            told.append(question.removesuffix("?"))
            assert sum(sentence.weights[0] for sentence in sentences) == pytest.approx(1)
        assert [sentence.text for sentence in sentences] == told
        assert max(sentences[place].weights) > max(sentences[1 - place].weights)
        assert hop_table(run)[0] == "hop 1  hop 2" and len(hop_table(run)) == 1 + len(sentences)
        shown = hops(run)
        assert shown is not None and shown["answer"] == ("office", "garden")[place]
        assert shown["question"] == question.removesuffix("?")
        assert explain(tmp_path / "run", f"{text}\t{question}").html()
