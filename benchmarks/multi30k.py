"""Multi30k: BLEU over time and on the test sets, after a given time of training with nothing set by hand.

    python benchmarks/multi30k.py path/to/multi30k --time 30m --seeds 1 2 3
    python benchmarks/multi30k.py path/to/multi30k --time 30m --text raw --target fr

`tok` is the official lowercased and tokenised text, on which scores are published (sacreBLEU without tokenisation);
`raw` is text as it is written (sacreBLEU as it is). Validation chooses the model and the length penalty; the test sets
are translated once, with a beam of 5, after training has ended. Several seeds are also measured together, as an
ensemble. With --out the runs are kept, and those that are complete are not run again.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from runs import evaluate, print_course, summary, train

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
    target, tokenised = asked.target, ["--tokenize", "none"] if asked.text == "tok" else []
    files = ["--source", corpus / "train.en", "--target", corpus / f"train.{target}"]
    files += ["--valid-source", corpus / "val.en", "--valid-target", corpus / f"val.{target}"]
    with tempfile.TemporaryDirectory() as scratch:
        runs = [(asked.out or Path(scratch)) / f"{asked.text}-{target}-{seed}" for seed in asked.seeds]
        for seed, run in zip(asked.seeds, runs, strict=True):
            train(run, *files, "--time", asked.time, f"train.seed={seed}", *asked.settings)
            print_course(run, seed)
        for name in TESTS:
            test = corpus / f"{name}.en", corpus / f"{name}.{target}"
            scores = [evaluate([run], *test, *tokenised)["bleu"] for run in runs]
            print(summary(f"{name}: after {asked.time} BLEU", scores, asked.seeds), flush=True)
            if len(runs) > 1:
                print(f"  all {len(runs)} as an ensemble {evaluate(runs, *test, *tokenised)['bleu']:.2f}", flush=True)


if __name__ == "__main__":
    main()
