"""Multi30k: BLEU over time and on the test sets, after a given time of training with nothing set by hand.

    python benchmarks/multi30k.py path/to/multi30k --time 30m --seeds 1 2 3
    python benchmarks/multi30k.py path/to/multi30k --time 30m --text raw --target fr
    python benchmarks/multi30k.py path/to/multi30k --time 25m --seeds 1 2 --student 30m

`tok` is the official lowercased and tokenised text, on which scores are published (sacreBLEU without tokenisation);
`raw` is text as it is written (sacreBLEU as it is). Validation chooses the model and the length penalty; the test sets
are translated once, with a beam of 5, after training has ended. Several seeds are also measured together, as an
ensemble. With --student one more model learns, for so long, from the references and from what they translate together
(sequence-level distillation; Kim and Rush, 2016). With --out the runs are kept, and those that are complete are not run
again.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from runs import evaluate, heedful, print_course, summary, train

TESTS = ("test_2016_flickr", "test_2017_flickr")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, help="the folder multi30k, with tok/ in it")
    parser.add_argument("--time", default="30m", help="of training, for each seed")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--student", metavar="TIME", help="of training one more model on what these translate")
    parser.add_argument("--text", choices=["tok", "raw"], default="tok")
    parser.add_argument("--target", choices=["de", "fr"], default="de")
    parser.add_argument("--out", type=Path, help="keep the runs here")
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE", help="settings other than the automatic ones")
    arguments = parser.parse_intermixed_args()
    corpus = arguments.corpus / "tok" if arguments.text == "tok" else arguments.corpus
    target, tokenised = arguments.target, ["--tokenize", "none"] if arguments.text == "tok" else []
    source, reference = corpus / "train.en", corpus / f"train.{target}"
    valid: list[str | Path] = ["--valid-source", corpus / "val.en", "--valid-target", corpus / f"val.{target}"]

    def learn(run: Path, source: Path, target: Path, time: str, seed: int) -> None:
        files = ["--source", source, "--target", target, *valid]
        train(run, *files, "--time", time, f"train.seed={seed}", *arguments.settings)
        print_course(run, seed)

    def test(runs: Sequence[Path], time: str, seeds: Sequence[int]) -> None:
        for name in TESTS:
            files = corpus / f"{name}.en", corpus / f"{name}.{target}"
            scores = [evaluate([run], *files, *tokenised)["bleu"] for run in runs]
            print(summary(f"{name}: after {time} BLEU", scores, seeds), flush=True)
            if len(runs) > 1:
                print(f"  all {len(runs)} as an ensemble {evaluate(runs, *files, *tokenised)['bleu']:.2f}", flush=True)

    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.out or Path(scratch)
        runs = [folder / f"{arguments.text}-{target}-{seed}" for seed in arguments.seeds]
        for seed, run in zip(arguments.seeds, runs, strict=True):
            learn(run, source, reference, arguments.time, seed)
        test(runs, arguments.time, arguments.seeds)
        if arguments.student:
            name = f"{arguments.text}-{target}-{'+'.join(map(str, arguments.seeds))}"
            student = folder / f"{name}-student"
            learn(student, *taught(runs, source, reference, folder / name), arguments.student, arguments.seeds[0])
            test([student], f"{arguments.student} as a student", arguments.seeds[:1])


def taught(teachers: Sequence[Path], source: Path, reference: Path, name: Path) -> tuple[Path, Path]:
    """A corpus of twice the size: the references, and what the teachers make of the same sentences together."""
    translated = name.with_name(f"{name.name}-translated{reference.suffix}")
    if not translated.exists():
        began = time.monotonic()
        unfinished = translated.with_suffix(".tmp")
        heedful("translate", *teachers, "--input", source, "--output", unfinished)
        unfinished.rename(translated)
        print(f"{source} translated in {(time.monotonic() - began) / 60:.1f} minutes", flush=True)
    both = name.with_name(f"{name.name}-both{source.suffix}"), name.with_name(f"{name.name}-both{reference.suffix}")
    for path, parts in zip(both, ((source, source), (reference, translated)), strict=True):
        path.write_text(
            "".join(part.read_text(encoding="utf-8").rstrip("\n") + "\n" for part in parts), encoding="utf-8"
        )
    return both


if __name__ == "__main__":
    main()
