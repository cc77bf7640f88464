"""A memory network as a language model beside an LSTM and a GPT of the same size: perplexity for the same CPU time.

    python benchmarks/language_models.py tinyshakespeare.txt --seconds 60

All read characters, in blocks of 128, on one thread, in PyTorch, with Adam and a learning rate that falls to zero. The
first nine tenths of the text are for training, the rest for validation. The memory network has the paper's 6 hops and
100 memories. The time is that of the processor from the first update on, validation included. Printed for each:
parameters, updates, CPU milliseconds of an update without validation, and the best validation loss and perplexity per
character.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from runs import best_validation, count_parameters, heedful_by_cpu_time, read_metrics, seconds_per_update

COMMON = [
    "text.kind=characters", "data.documents=files", "model.dropout=0", "model.max_length=128", "train.block_size=128",
    "train.batch_tokens=2048", "train.optimizer=adam", "train.weight_decay=0", "train.clip_norm=1",
    "train.schedule=linear", "train.warmup=50", "train.threads=1", "train.backend=torch", "train.precision=float32",
    "train.average_checkpoints=1", "train.sample=0", "train.valid_tokens=20000",
]  # fmt: skip
SYSTEMS = {
    "memory network": [
        "model.architecture=memory-network", "model.d_model=176", "model.decoder_layers=6", "model.memory_size=100",
        "train.learning_rate=2e-3",
    ],
    "LSTM": [
        "model.architecture=rnn", "model.d_model=128", "model.decoder_layers=1", "train.learning_rate=8e-3",
    ],
    "GPT": [
        "model.d_model=80", "model.d_ff=320", "model.n_heads=4", "model.decoder_layers=2", "train.learning_rate=5e-3",
    ],
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--seconds", type=int, default=60, help="CPU time of each run")
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="other settings")
    options = parser.parse_args()
    print(f"{options.seconds} CPU seconds each, one thread, seed {options.seed}")
    print(
        "| | parameters | updates | ms an update | validation loss | perplexity |\n|---|---|---|---|---|---|",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        text = options.text.read_text(encoding="utf-8")
        parts = {"train": text[: len(text) * 9 // 10], "valid": text[len(text) * 9 // 10 :]}
        for name, part in parts.items():
            (folder / f"{name}.txt").write_text(part, encoding="utf-8")
        for name in options.systems:
            print(row(name, folder, options), flush=True)


def row(name: str, folder: Path, options: argparse.Namespace) -> str:
    out = folder / name
    words = ["--text", folder / "train.txt", "--valid-text", folder / "valid.txt", "--out", out, "--preset", "tiny"]
    settings = [*COMMON, *SYSTEMS[name], f"train.seed={options.seed}", *options.set]
    heedful_by_cpu_time("train", "--task", "language-model", *words, "--time", f"{options.seconds}s", *settings)
    best = best_validation(out)
    return (
        f"| {name} | {count_parameters(out):,} | {read_metrics(out)[-1]['update']:,} "
        f"| {1000 * seconds_per_update(out):.0f} | {best['valid_loss']:.3f} | {best['valid_perplexity']:.2f} |"
    )


if __name__ == "__main__":
    main()
