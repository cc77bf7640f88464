"""A GPT, a BERT and a classifier that must learn: if these pass, the whole path from text to text is right."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import heedful
from heedful import config
from heedful.inference.encoder import Encoder
from heedful.inference.generator import Generator
from heedful.training.api import run_training
from heedful.training.run_report import read_metrics

pytestmark = pytest.mark.slow

SMALL = {"d_model": 64, "d_ff": 128, "n_heads": 4, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0}
FACTS = {  # who does what where: each tells the others
    "dog": ("barks", "garden"), "cat": ("sleeps", "house"), "fish": ("swims", "river"), "bird": ("sings", "tree"),
    "horse": ("runs", "field"), "bee": ("hums", "flower"),
}  # fmt: skip
TIMES = ["today", "often", "always", "again"]


def sentences(count: int, seed: int) -> list[str]:
    chosen = random.Random(seed)
    return [
        f"the {animal} {FACTS[animal][0]} {chosen.choice(TIMES)} in the {FACTS[animal][1]}."
        for animal in chosen.choices(list(FACTS), k=count)
    ]


def trained(
    out: Path, task: str, data: dict[str, object], train: dict[str, object], **sections: dict[str, object]
) -> Path:
    settings = config.load_config(None, [f"task={task}"], data=data, train=train, **sections)
    run_training(settings, out, console=Console(quiet=True))
    return out


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "corpus.txt"
    path.write_text("\n\n".join("\n".join(sentences(6, seed)) for seed in range(220)), encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", ["bpe", pytest.param("characters", marks=pytest.mark.long)])
def test_a_gpt_learns_a_tiny_grammar(corpus: Path, tmp_path: Path, kind: str) -> None:
    train = {"max_updates": 250, "checkpoint_every": 250, "batch_tokens": 768, "block_size": 64, "learning_rate": 3e-3}
    out = trained(
        tmp_path / "gpt", "language-model", {"text": corpus}, train | {"warmup": 20}, model=SMALL, text={"kind": kind}
    )
    generator = heedful.load(out)
    assert isinstance(generator, Generator)
    right = 0
    for animal, (verb, place) in FACTS.items():
        text = generator.generate(f"the {animal}", temperature=0, stop="\n", max_tokens=60)
        right += text.startswith(f" {verb} ") and text.endswith(f"in the {place}.")
    assert right == len(FACTS)
    written = generator.generate(seed=4, max_tokens=300, temperature=0.7).split("\n")[:-1]
    known = {f"the {a} {v} {t} in the {p}." for a, (v, p) in FACTS.items() for t in TIMES}
    assert sum(line in known for line in written) >= 0.8 * len(written)
    last = [record for record in read_metrics(out) if "valid_loss" in record][-1]
    assert last["valid_bits_per_byte"] < 0.5


@pytest.fixture(scope="module")
def bert(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    train = {"max_updates": 500, "checkpoint_every": 500, "batch_tokens": 1024, "block_size": 32, "learning_rate": 3e-3}
    train |= {"warmup": 20, "whole_words": True, "mask_prob": 0.2}
    return trained(tmp_path_factory.mktemp("runs") / "bert", "masked-lm", {"text": corpus}, train, model=SMALL)


@pytest.mark.long
def test_a_bert_fills_the_blanks_of_a_tiny_grammar(bert: Path) -> None:
    encoder = heedful.load(bert)
    assert isinstance(encoder, Encoder)
    requested = []
    for animal, (verb, place) in FACTS.items():
        for time in TIMES:
            requested += [
                (f"the [MASK] {verb} {time} in the {place}.", animal),
                (f"the {animal} <mask> {time} in the {place}.", verb),
                (f"the {animal} {verb} {time} in the [MASK].", place),
            ]
    right = sum(encoder.fill_mask(text, top=1)[0][0].token == answer for text, answer in requested)
    assert right / len(requested) >= 0.95
    (best,) = encoder.fill_mask("the bird [MASK] today in the tree.", top=1)
    assert best[0].probability > 0.8
    assert best[0].text == "the bird sings today in the tree."


@pytest.mark.long
def test_sentences_about_the_same_are_near_each_other(bert: Path) -> None:
    encoder = heedful.load(bert)
    vectors = encoder.embed(["the dog barks today in the garden.", "the dog barks often in the garden.",
                             "the fish swims today in the river."])  # fmt: skip
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1, 1], abs=1e-5)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]


@pytest.mark.long
def test_a_classifier_learns(bert: Path, tmp_path: Path) -> None:
    water = {"fish", "bee"}
    examples = [(("wet" if any(value in line for value in water) else "dry"), line) for line in sentences(300, 9)]
    (tmp_path / "train.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in examples), encoding="utf-8")
    train = {"init": bert, "max_updates": 120, "checkpoint_every": 60, "batch_tokens": 512}
    out = trained(tmp_path / "tagger", "classification", {"labeled": tmp_path / "train.tsv"}, train)
    encoder = heedful.load(out)
    texts = [f"the {animal} {verb} in the {place}." for animal, (verb, place) in FACTS.items()]
    expected = ["wet" if animal in water else "dry" for animal in FACTS]
    assert [item.label for item in encoder.classify(texts)] == expected
    last = [record for record in read_metrics(out) if "valid_loss" in record][-1]
    assert last["valid_accuracy"] == last["valid_macro_f1"] == 100


@pytest.mark.long
def test_a_classifier_compares_two_texts(bert: Path, tmp_path: Path) -> None:
    chosen, lines = random.Random(5), []
    for first in sentences(600, 3):
        same = chosen.random() < 0.5
        animal = first.split()[1]
        other = animal if same else chosen.choice([item for item in FACTS if item != animal])
        lines.append(f"{'same' if same else 'other'}\t{first}\tthe {other} {FACTS[other][0]}.\n")
    (tmp_path / "train.tsv").write_text("".join(lines), encoding="utf-8")
    train = {"init": bert, "max_updates": 400, "checkpoint_every": 100, "batch_tokens": 1024, "learning_rate": 1e-3}
    out = trained(tmp_path / "tagger", "classification", {"labeled": tmp_path / "train.tsv"}, train)
    assert max(record.get("valid_accuracy", 0) for record in read_metrics(out)) >= 90
