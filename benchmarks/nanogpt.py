"""Character-level Shakespeare beside nanoGPT, in one go: tokens a second, and validation losses.

    python benchmarks/nanogpt.py path/to/nanoGPT path/to/tinyshakespeare.txt

Both train the recipe that nanoGPT publishes for a CPU: 4 layers, 4 heads, 128 wide, blocks of 64, batches of 12, 2,000
iterations, no dropout. Speed is measured in short rounds that alternate, so that a machine that is busy for a while
slows both down; losses come from one full run of each. The checkout is copied and never changed.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch.utils.benchmark import Timer

TOKENS = 12 * 64  # an iteration
THEIRS = [
    "--device=cpu", "--compile=False", "--block_size=64", "--batch_size=12", "--n_layer=4", "--n_head=4",
    "--n_embd=128", "--dropout=0.0", "--log_interval=1", "--always_save_checkpoint=False",
]  # fmt: skip
OURS = [
    "data.documents=files", "text.kind=characters", "model.decoder_layers=4", "model.n_heads=4", "model.d_model=128",
    "model.d_ff=512", "model.dropout=0", "train.block_size=64", "train.batch_tokens=768", "train.learning_rate=4e-3",
    "train.sample=0", "train.valid_tokens=1000000",
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="a checkout of nanoGPT")
    parser.add_argument("text", type=Path, help="tinyshakespeare.txt")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of speed measurements")
    parser.add_argument("--updates", type=int, default=200, help="iterations of a speed measurement")
    parser.add_argument("--iterations", type=int, default=2000, help="of the full runs; 0 to leave them out")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="CPU threads of either")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(asked.checkout, asked.text, Path(folder), asked.threads)
        speeds = [(bench.nanogpt(asked.updates)[0], bench.heedful(asked.updates)[0]) for _ in range(asked.rounds)]
        print_speeds(speeds)
        print_bound(asked.threads, statistics.median(theirs for theirs, _ in speeds))
        if asked.iterations:
            print_losses(bench.nanogpt(asked.iterations)[1], bench.heedful(asked.iterations)[1], asked.iterations)


class Bench:
    """Both programs, ready to train on the same characters: nine tenths for training, the last one for validation."""

    def __init__(self, checkout: Path, text: Path, folder: Path, threads: int) -> None:
        if not (checkout / "train.py").is_file():
            sys.exit(f"{checkout} is no checkout of nanoGPT: it has no train.py")
        self.folder, self.runs = folder, 0
        self.peer = Path(shutil.copytree(checkout, folder / "peer", ignore=shutil.ignore_patterns(".git", "out*")))
        self.environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
        data = self.peer / "data" / "shakespeare_char"
        data.mkdir(parents=True, exist_ok=True)
        whole = text.read_text(encoding="utf-8")
        cut = int(len(whole) * 0.9)
        number = {character: i for i, character in enumerate(sorted(set(whole)))}
        meta = {"vocab_size": len(number), "stoi": number, "itos": {i: c for c, i in number.items()}}
        (data / "meta.pkl").write_bytes(pickle.dumps(meta))
        for theirs, ours, part in (("train", "train", whole[:cut]), ("val", "valid", whole[cut:])):
            np.array([number[character] for character in part], np.uint16).tofile(data / f"{theirs}.bin")
            (folder / f"{ours}.txt").write_text(part, encoding="utf-8")

    def nanogpt(self, iterations: int) -> tuple[float, float]:
        """Tokens a second, and the validation loss at the end."""
        words = [f"--max_iters={iterations}", f"--lr_decay_iters={iterations}", f"--eval_interval={iterations}"]
        words += [f"--eval_iters={200 if iterations >= 1000 else 1}"]
        command = [sys.executable, "train.py", "config/train_shakespeare_char.py", *THEIRS, *words]
        return read_nanogpt(self.run(command, self.peer))

    def heedful(self, iterations: int) -> tuple[float, float]:
        """The same of ours."""
        self.runs += 1
        out = self.folder / "ours" / str(self.runs)
        words = [f"train.max_updates={iterations}", f"train.checkpoint_every={iterations}"]
        files = ["--text", self.folder / "train.txt", "--valid-text", self.folder / "valid.txt", "--out", out]
        self.run([sys.executable, "-m", "heedful", "train", *OURS, *words, *map(str, files)], self.folder)
        return read_heedful((out / "metrics.jsonl").read_text(encoding="utf-8"))

    def run(self, command: Sequence[str], folder: Path) -> str:
        done = subprocess.run(command, cwd=folder, env=self.environment, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(command[:3])} failed:\n{done.stderr[-2000:]}")
        return done.stdout


def read_nanogpt(output: str) -> tuple[float, float]:
    """Its log -> tokens a second by the median iteration, and the last validation loss."""
    times = [float(each) for each in re.findall(r"^iter \d+: loss [\d.]+, time ([\d.]+)ms", output, re.MULTILINE)]
    losses = re.findall(r"^step \d+: train loss [\d.]+, val loss ([\d.]+)", output, re.MULTILINE)
    if len(times) < 3 or not losses:
        sys.exit(f"the log of nanoGPT is not what this benchmark can read:\n{output[-1000:]}")
    return 1000 * TOKENS / statistics.median(times[1:]), float(losses[-1])


def read_heedful(metrics: str) -> tuple[float, float]:
    """Our metrics.jsonl -> tokens a second by the median record, and the last validation loss."""
    records = [json.loads(line) for line in metrics.splitlines()]
    speeds = [record["tokens_per_second"] for record in records if "tokens_per_second" in record]
    losses = [record["valid_loss"] for record in records if "valid_loss" in record]
    return statistics.median(speeds[1:] or speeds), losses[-1]


def print_speeds(speeds: Sequence[tuple[float, float]]) -> None:
    ratios = sorted(ours / theirs for theirs, ours in speeds)
    for theirs, ours in speeds:
        print(f"nanoGPT {theirs:8,.0f} tokens/s   heedful {ours:8,.0f} tokens/s   {ours / theirs:.2f} x")
    print(f"ratio: median {statistics.median(ratios):.2f}, from {ratios[0]:.2f} to {ratios[-1]:.2f}")


def print_bound(threads: int, theirs: float) -> None:
    """What nothing but the products of an iteration would reach, each shape at the rate it has here, in float32."""
    torch.set_num_threads(threads)
    seconds = 0.0
    for inner, outer, count in ((128, 128, 4 * 4), (128, 512, 4), (512, 128, 4), (128, 65, 1)):
        x, weight, slope = torch.randn(TOKENS, inner), torch.randn(outer, inner), torch.randn(TOKENS, outer)
        for product in ("x @ weight.T", "slope @ weight", "slope.T @ x"):  # forward, and both gradients
            timer = Timer(product, globals={"x": x, "weight": weight, "slope": slope})
            seconds += count * timer.blocked_autorange(min_run_time=0.3).median
    bound = TOKENS / seconds
    print(f"bound: the products of the weights alone take {bound:,.0f} tokens/s, {bound / theirs:.2f} x nanoGPT")


def print_losses(theirs: float, ours: float, iterations: int) -> None:
    print(f"validation loss after {iterations:,} iterations: nanoGPT {theirs:.4f}, heedful {ours:.4f}")


if __name__ == "__main__":
    main()
