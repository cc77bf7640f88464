"""Character-level Shakespeare beside nanoGPT, in one go: tokens a second, and validation losses.

    python benchmarks/nanogpt.py path/to/nanoGPT path/to/tinyshakespeare.txt
    python benchmarks/nanogpt.py path/to/nanoGPT path/to/tinyshakespeare.txt --iterations 0 --size large --updates 20

Both train the recipe that nanoGPT publishes for a CPU: 4 layers, 4 heads, 128 wide, blocks of 64, batches of 12, 2,000
iterations, no dropout; `--size large` takes its recipe for a GPU, 6 layers, 6 heads, 384 wide, blocks of 256. Speed is
measured in short rounds that alternate, so that a machine that is busy for a while slows both down; losses come from
one full run of each. nanoGPT computes in float32 on a CPU; `--autocast` measures a copy whose one line about that is
changed, so that it computes in bfloat16. The checkout is copied and never changed.
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
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.utils.benchmark import Timer

ROWS = 12  # blocks of an iteration
THEIRS = ["--device=cpu", "--compile=False", "--dropout=0.0", "--log_interval=1", "--always_save_checkpoint=False"]
OURS = [
    "data.documents=files", "text.kind=characters", "model.dropout=0", "train.learning_rate=4e-3", "train.sample=0",
    "train.valid_tokens=1000000",
]  # fmt: skip
FLOAT32_ON_CPU = "nullcontext() if device_type == 'cpu' else "  # the line of its train.py that autocast needs changed


@dataclass(frozen=True)
class Size:
    """The model and the blocks of a recipe."""

    layers: int
    heads: int
    width: int
    block: int

    @property
    def tokens(self) -> int:
        """Of an iteration."""
        return ROWS * self.block

    def theirs(self) -> list[str]:
        sizes = {"n_layer": self.layers, "n_head": self.heads, "n_embd": self.width, "block_size": self.block}
        return [f"--{name}={value}" for name, value in (sizes | {"batch_size": ROWS}).items()]

    def ours(self) -> list[str]:
        model = {"decoder_layers": self.layers, "n_heads": self.heads, "d_model": self.width, "d_ff": 4 * self.width}
        train = {"block_size": self.block, "batch_tokens": self.tokens}
        return [f"{part}.{k}={v}" for part, keys in (("model", model), ("train", train)) for k, v in keys.items()]


SIZES = {"small": Size(4, 4, 128, 64), "large": Size(6, 6, 384, 256)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="a checkout of nanoGPT")
    parser.add_argument("text", type=Path, help="tinyshakespeare.txt")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of speed measurements")
    parser.add_argument("--updates", type=int, default=200, help="iterations of a speed measurement")
    parser.add_argument("--iterations", type=int, default=2000, help="of the full runs; 0 to leave them out")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="CPU threads of either")
    parser.add_argument("--size", choices=SIZES, default="small", help="the recipe for a CPU, or the larger one")
    parser.add_argument("--autocast", action="store_true", help="nanoGPT in bfloat16 instead of float32")
    arguments = parser.parse_args()
    size = SIZES[arguments.size]
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(arguments.checkout, arguments.text, Path(folder), size, arguments.threads, arguments.autocast)
        speeds = [
            (bench.nanogpt(arguments.updates)[0], bench.heedful(arguments.updates)[0]) for _ in range(arguments.rounds)
        ]
        print_speeds(speeds)
        print_bound(arguments.threads, size, statistics.median(theirs for theirs, _ in speeds))
        if arguments.iterations:
            print_losses(
                bench.nanogpt(arguments.iterations)[1], bench.heedful(arguments.iterations)[1], arguments.iterations
            )


class Bench:
    """Both programs, ready to train on the same characters: nine tenths for training, the last one for validation."""

    def __init__(
        self, checkout: Path, text: Path, folder: Path, size: Size, threads: int, autocast: bool = False
    ) -> None:
        if not (checkout / "train.py").is_file():
            sys.exit(f"{checkout} is no checkout of nanoGPT: it has no train.py")
        self.folder, self.size, self.runs = folder, size, 0
        self.peer = Path(shutil.copytree(checkout, folder / "peer", ignore=shutil.ignore_patterns(".git", "out*")))
        self.dtype = "bfloat16" if autocast else "float32"
        if autocast:
            script = self.peer / "train.py"
            script.write_text(script.read_text(encoding="utf-8").replace(FLOAT32_ON_CPU, ""), encoding="utf-8")
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
        words += [f"--eval_iters={200 if iterations >= 1000 else 1}", f"--warmup_iters={min(100, iterations // 2)}"]
        words += [f"--dtype={self.dtype}", *self.size.theirs()]
        command = [sys.executable, "train.py", "config/train_shakespeare_char.py", *THEIRS, *words]
        return read_nanogpt(self.run(command, self.peer), self.size.tokens)

    def heedful(self, iterations: int) -> tuple[float, float]:
        """The same of ours."""
        self.runs += 1
        out = self.folder / "ours" / str(self.runs)
        words = [f"train.max_updates={iterations}", f"train.checkpoint_every={iterations}"]
        files = ["--text", self.folder / "train.txt", "--valid-text", self.folder / "valid.txt", "--out", out]
        task = ["--task", "language-model", *OURS, *self.size.ours()]
        self.run([sys.executable, "-m", "heedful", "train", *task, *words, *map(str, files)], self.folder)
        return read_heedful((out / "metrics.jsonl").read_text(encoding="utf-8"))

    def run(self, command: Sequence[str], folder: Path) -> str:
        done = subprocess.run(command, cwd=folder, env=self.environment, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(command[:3])} failed:\n{done.stderr[-2000:]}")
        return done.stdout


def read_nanogpt(output: str, tokens: int) -> tuple[float, float]:
    """Its log -> tokens a second by the median iteration, and the last validation loss."""
    times = [
        float(milliseconds)
        for milliseconds in re.findall(r"^iter \d+: loss [\d.]+, time ([\d.]+)ms", output, re.MULTILINE)
    ]
    losses = re.findall(r"^step \d+: train loss [\d.]+, val loss ([\d.]+)", output, re.MULTILINE)
    if len(times) < 3 or not losses:
        sys.exit(f"the log of nanoGPT is not what this benchmark can read:\n{output[-1000:]}")
    return 1000 * tokens / statistics.median(times[1:]), float(losses[-1])


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


def print_bound(threads: int, size: Size, theirs: float) -> None:
    """What nothing but the products of an iteration would reach in PyTorch, each shape at the rate it has here."""
    torch.set_num_threads(threads)
    width, layers, tokens = size.width, size.layers, size.tokens
    shapes = ((width, width, 4 * layers), (width, 4 * width, layers), (4 * width, width, layers), (width, 65, 1))
    for dtype in (torch.float32, torch.bfloat16):
        seconds = 0.0
        for inner, outer, count in shapes:
            sides = [torch.randn(shape).to(dtype) for shape in ((tokens, inner), (outer, inner), (tokens, outer))]
            for product in ("x @ weight.T", "grad @ weight", "grad.T @ x"):  # forward, and both gradients
                timer = Timer(product, globals=dict(zip(("x", "weight", "grad"), sides, strict=True)))
                seconds += count * timer.blocked_autorange(min_run_time=0.3).median
        bound = tokens / seconds
        print(f"bound: the products alone take {bound:,.0f} tokens/s in {dtype}, {bound / theirs:.2f} x nanoGPT")


def print_losses(theirs: float, ours: float, iterations: int) -> None:
    print(f"validation loss after {iterations:,} iterations: nanoGPT {theirs:.4f}, heedful {ours:.4f}")


if __name__ == "__main__":
    main()
