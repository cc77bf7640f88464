"""`heedful demo`."""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path
from shutil import which
from typing import Annotated, Any

import typer

SETTINGS: dict[str, dict[str, Any]] = {
    "text": {"vocab_size": 3000},
    "model": {"d_model": 128, "d_ff": 256, "n_heads": 4, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0},
    "train": {
        "embedding_init": "random",  # co-occurrence in generated sentences carries no meaning
        "sampled_softmax": 0,
        "bpe_dropout": 0.0,
        "weight_decay": 0.0,
        "learning_rate": 8e-3,
        "warmup": 100,
        "schedule": "linear",
        "max_updates": 1050,
        "checkpoint_every": 350,
        "batch_tokens": 1024,
        "average_checkpoints": 1,
        "valid_sentences": 200,
    },
}


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the corpus and the model.")] = Path("runs/demo"),
) -> None:
    """Train a translator on the embedded corpus. It is small, English-German; its BLEU and examples are printed."""
    from heedful import config
    from heedful import demo as corpus
    from heedful.errors import FolderError
    from heedful.evaluation.metrics import evaluate
    from heedful.inference.translator import Translator
    from heedful.inside import draw_cross_attention
    from heedful.training.api import run_training

    if out.exists() and not out.is_dir():
        raise FolderError(f"{out} is a file, and --out is a folder for the corpus and the model; choose another --out.")
    if out.exists() and any(out.iterdir()):
        raise FolderError(f"{out} exists already; remove it to run the demo again, or choose another --out.")
    data = out / "data"
    test = corpus.write(data).test
    files = {"source": "train.en", "target": "train.de", "valid_source": "valid.en", "valid_target": "valid.de"}
    settings = config.load_config(None, (), data={key: data / name for key, name in files.items()}, **SETTINGS)
    model = out / "model"
    run_training(settings, model)
    translator = Translator.load(model)
    translated = translator.translate([pair.source for pair in test])
    result = evaluate(translated, [pair.target for pair in test])
    right = [pair for pair, text in zip(test, translated, strict=True) if text == pair.target] or test
    pictured = max(right, key=lambda pair: crossings(pair.alignment)).source
    draw_cross_attention(translator, pictured, model / "attention.png")
    print(f"\nOn {result.sentences} sentences that were not in the training corpus:")
    print(f"  BLEU {result.bleu:.2f}   exact match {result.exact:.1f} %   ({result.signatures['BLEU']})\n")
    for pair, text in list(zip(test, translated, strict=True))[:6]:
        print(f"  {pair.source}\n  {text}{'' if text == pair.target else f'   (expected: {pair.target})'}\n")
    print(f"Learning curve: {model / 'learning_curve.png'}\nAttention:      {model / 'attention.png'}\n")
    program = "heedful" if which("heedful") else sys.argv[0]  # before the virtual environment is activated
    print("Try next:")
    print(f'  echo "{pictured}" | {program} translate {model}')
    print(f"  {program} evaluate {model} --source {data / 'test.en'} --reference {data / 'test.de'}")
    print(f"  {program} serve {model}")
    print(f"  {program} train --source your.en --target your.de --out runs/yours --time 30m")


def crossings(alignment: Collection[tuple[int, int]]) -> int:
    """Pairs of words that change their order in translation."""
    return sum(a < c and b > d for a, b in alignment for c, d in alignment)
