"""Word error rate on the Free Spoken Digit Dataset after so many minutes of training.

    python benchmarks/fsdd.py FSDD.tar.gz --time 10m
    python benchmarks/fsdd.py FSDD.tar.gz --time 5m --leave-out theo
    python benchmarks/fsdd.py FSDD.tar.gz --time 10m --init tiny.en.pt
    python benchmarks/fsdd.py FSDD.tar.gz --updates 40 --init tiny.en.pt train.batch_tokens=1024 train.warmup=5

The usual test set is recordings 0 to 4 of every speaker and digit; with --leave-out it is all recordings of a speaker
whom the model never heard. Validation recordings are taken from those for training. With --init the model of that
folder is fine-tuned, and is also measured as it is. On a machine that is busy, --updates measures what so many updates
reach, and how much computation they are.
"""

from __future__ import annotations

import argparse
import tarfile
import tempfile
import time
from pathlib import Path

import heedful
from heedful.config import load_config
from heedful.evaluation.word_errors import evaluate_speech
from heedful.inference.transcriber import Transcriber

DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
HELD_OUT = 5  # recordings of every speaker and digit


def split(folder: Path, left_out: str | None) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """(path, word) of the training and of the test set."""
    train, test = [], []
    for path in sorted(folder.rglob("*_*_*.wav")):
        digit, speaker, number = path.stem.split("_")
        unseen = speaker == left_out if left_out else int(number) < HELD_OUT
        (test if unseen else train).append((str(path), DIGITS[int(digit)]))
    return train, test


def measure(name: str, transcriber: Transcriber, test: list[tuple[str, str]], words: dict[str, str]) -> None:
    """Print WER and CER; figures that a model writes, such as 7, count as the word."""
    written = [words.get(text.strip(" .!?,").lower(), text) for text in transcriber.transcribe([p for p, _ in test])]
    result = evaluate_speech(written, [text for _, text in test])
    wrong = result.substitutions + result.deletions + result.insertions
    print(
        f"{name}: WER {result.wer:.2f} % ({wrong} errors in {result.words} words), CER {result.cer:.2f} %", flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path)
    parser.add_argument("--time", default="10m")
    parser.add_argument("--leave-out", metavar="SPEAKER")
    parser.add_argument("--init", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--updates", type=int, help="so many updates with one thread, whatever time they take")
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE", help="settings other than the automatic ones")
    arguments = parser.parse_intermixed_args()
    words = {str(number): word for number, word in enumerate(DIGITS)}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with tarfile.open(arguments.archive) as archive:
            archive.extractall(folder, filter="data")
        train, test = split(folder, arguments.leave_out)
        print(f"{len(train)} recordings for training, {len(test)} for the test", flush=True)
        if arguments.init:
            measure("before", heedful.load(arguments.init, kind=Transcriber), test, words)
        settings = [f"train.seed={arguments.seed}", *arguments.settings]
        if arguments.updates:
            settings += [f"train.max_updates={arguments.updates}", "train.threads=1"]
        began, computed = time.perf_counter(), time.process_time()
        model = heedful.train(
            load_config(None, settings), audio=train, out=folder / "run", init=arguments.init,
            time=None if arguments.updates else arguments.time,
        )  # fmt: skip
        minutes = [(time.perf_counter() - began) / 60, (time.process_time() - computed) / 60]
        print(f"training took {minutes[0]:.1f} minutes, and {minutes[1]:.1f} of computation on one core", flush=True)
        measure("trained", model, test, words)


if __name__ == "__main__":
    main()
