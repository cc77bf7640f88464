"""What benchmarks of quality share: the program as a user runs it, and the course of a run."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def heedful(*words: str | Path, printed: bool = False) -> str:
    """Run a command; what it printed, if that is asked for."""
    command = [sys.executable, "-m", "heedful", *map(str, words)]
    done = subprocess.run(command, stdout=subprocess.PIPE if printed else None, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed")
    return done.stdout or ""


def train(run: Path, *words: str | Path) -> None:
    """Train, or go on with what is there already."""
    heedful("train", *words, "--out", run, *(["--resume"] if run.exists() else []))


def evaluate(runs: Sequence[Path], source: Path, reference: Path, *words: str) -> dict[str, Any]:
    """Scores of a test set, by sacreBLEU, with a beam of 5; several models are an ensemble."""
    files: list[str | Path] = [*runs, "--source", source, "--reference", reference]
    scores: dict[str, Any] = json.loads(heedful("evaluate", *files, "--beam", "5", "--json", *words, printed=True))
    return scores


def print_course(run: Path, seed: int) -> None:
    """BLEU on the validation set over time."""
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
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
