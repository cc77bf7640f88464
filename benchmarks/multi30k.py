"""Multi30k: BLEU over time and on the test set, after a given time of training with nothing set by hand.

    python benchmarks/multi30k.py path/to/multi30k --time 30m --seeds 1 2
    python benchmarks/multi30k.py path/to/multi30k --time 30m --text raw --target fr

`tok` is the official lowercased and tokenised text, on which scores are published (sacreBLEU without tokenisation);
`raw` is text as it is written (sacreBLEU as it is). Validation chooses the model; the test sets are translated once,
with a beam of 5, after training has ended.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

TESTS = ("test_2016_flickr", "test_2017_flickr")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, help="the folder multi30k, with tok/ in it")
    parser.add_argument("--time", default="30m", help="of training, for each seed")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--text", choices=["tok", "raw"], default="tok")
    parser.add_argument("--target", choices=["de", "fr"], default="de")
    parser.add_argument("--out", type=Path, help="keep the runs here")
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE", help="settings other than the automatic ones")
    asked = parser.parse_intermixed_args()
    corpus = asked.corpus / "tok" if asked.text == "tok" else asked.corpus
    with tempfile.TemporaryDirectory() as scratch:
        found = []
        for seed in asked.seeds:
            run = (asked.out or Path(scratch)) / f"{asked.text}-{asked.target}-{seed}"
            train(corpus, asked.target, run, [f"train.time={asked.time}", f"train.seed={seed}", *asked.settings])
            print_course(run, seed)
            found.append([test(corpus, asked.target, run, name, asked.text == "tok") for name in TESTS])
    for name, scores in zip(TESTS, zip(*found, strict=True), strict=True):
        spread = f" ± {statistics.stdev(scores):.2f}" if len(scores) > 1 else ""
        each = ", ".join(f"{score:.2f}" for score in scores)
        print(f"{name}: BLEU {statistics.mean(scores):.2f}{spread} after {asked.time} (seeds {asked.seeds}: {each})")


def heedful(*words: str | Path, printed: bool = False) -> str:
    command = [sys.executable, "-m", "heedful", *map(str, words)]
    done = subprocess.run(command, stdout=subprocess.PIPE if printed else None, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed")
    return done.stdout or ""


def train(corpus: Path, target: str, run: Path, settings: Sequence[str]) -> None:
    files = ["--source", corpus / "train.en", "--target", corpus / f"train.{target}"]
    files += ["--valid-source", corpus / "val.en", "--valid-target", corpus / f"val.{target}"]
    heedful("train", *files, "--out", run, *settings)


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


def test(corpus: Path, target: str, run: Path, name: str, tokenised: bool) -> float:
    """BLEU of a test set, by sacreBLEU."""
    words = ["--source", corpus / f"{name}.en", "--reference", corpus / f"{name}.{target}", "--beam", "5", "--json"]
    answer = json.loads(heedful("evaluate", run, *words, *(["--tokenize", "none"] if tokenised else []), printed=True))
    return float(answer["bleu"])


if __name__ == "__main__":
    main()
