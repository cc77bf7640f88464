"""Models that must learn: if these pass, the whole path from text to text is right."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from rich.console import Console

from heedful import config
from heedful.inference.translator import Translator
from heedful.training.api import run_training

pytestmark = pytest.mark.slow

SMALL = {"d_model": 64, "d_ff": 128, "n_heads": 4, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0}


def learned(
    folder: Path, pairs: list[tuple[str, str]], model: dict[str, object], train: dict[str, object]
) -> Translator:
    """Train on all pairs but the last fifty, which are for validation."""
    folder.mkdir(exist_ok=True)
    for name, part in (("train", pairs[:-50]), ("valid", pairs[-50:])):
        (folder / f"{name}.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in part), encoding="utf-8")
    data = {"pairs": folder / "train.tsv", "valid_pairs": folder / "valid.tsv", "deduplicate": False}
    settings = config.load_config(None, (), data=data, model=SMALL | model, train=train, search={"beam": 1})
    run_training(settings, folder / "out", console=Console(quiet=True))
    return Translator.load(folder / "out")


def digits(count: int) -> list[str]:
    chosen = random.Random(0)
    return [" ".join(chosen.choices("0123456789", k=chosen.randint(3, 8))) for _ in range(count)]


@pytest.mark.parametrize("task", [pytest.param("copy", marks=pytest.mark.long), "reverse"])
def test_digits_are_copied_and_reversed(tmp_path: Path, task: str) -> None:
    def answer(line: str) -> str:
        return line if task == "copy" else " ".join(reversed(line.split()))

    lines = list(dict.fromkeys(digits(6400)))
    train, test = lines[:-400], lines[-400:]
    translator = learned(
        tmp_path,
        [(line, answer(line)) for line in train],
        {},
        {"learning_rate": 6e-3, "warmup": 50, "schedule": "linear", "max_updates": 300, "checkpoint_every": 300,
         "batch_tokens": 1500, "average_checkpoints": 1},
    )  # fmt: skip
    right = sum(a == answer(line) for line, a in zip(test, translator.translate(test), strict=True))
    assert right / len(test) >= 0.99


SENTENCES = [
    ("我爱中国", "I love China"), ("我爱你", "I love you"), ("你好", "hello"), ("谢谢", "thank you"),
    ("再见", "goodbye"), ("他是老师", "he is a teacher"), ("她是学生", "she is a student"),
    ("今天很热", "it is hot today"), ("我不知道", "I do not know"), ("中国很大", "China is big"),
]  # fmt: skip


def test_ten_chinese_sentences_are_learned_by_heart(tmp_path: Path) -> None:
    translator = learned(
        tmp_path,
        SENTENCES * 10,
        {},
        {"learning_rate": 2e-3, "warmup": 20, "schedule": "linear", "max_updates": 240, "checkpoint_every": 240,
         "batch_tokens": 400, "average_checkpoints": 1},
    )  # fmt: skip
    for text in ("我爱中国", "I love China"):
        assert translator.tokenizer.decode(translator.tokenizer.encode(text)) == text
    assert translator.translate([source for source, _ in SENTENCES]) == [target for _, target in SENTENCES]
    assert translator.translate("我爱中国", beam=4) == "I love China"
