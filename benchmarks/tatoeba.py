"""Tatoeba: BLEU and chrF on held-out sentences, after a given time of training with nothing set by hand.

    python benchmarks/tatoeba.py path/to/tatoeba/en-de.tsv.gz --time 1h

One English sentence has many translations, so it is English sentences that are held out, with all that belongs to them:
none of the test set is seen in training. Which they are follows from a fixed seed, whatever the seed of training. The
validation set is what `heedful train` itself takes from the rest.
"""

from __future__ import annotations

import argparse
import gzip
import random
import tempfile
from collections.abc import Iterable
from pathlib import Path

from runs import evaluate, print_course, summary, train

HELD_OUT, SPLIT_SEED = 2_000, 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, help="source TAB target, gzipped")
    parser.add_argument("--time", default="1h", help="of training, for each seed")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--out", type=Path, help="keep the runs here")
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE", help="settings other than the automatic ones")
    arguments = parser.parse_intermixed_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.out or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        pairs, source, reference = split(arguments.corpus, folder)
        result = []
        for seed in arguments.seeds:
            run = folder / f"{seed}"
            train(run, "--pairs", pairs, "--time", arguments.time, f"train.seed={seed}", *arguments.settings)
            print_course(run, seed)
            result.append(evaluate([run], source, reference))
    for name, title in (("bleu", "BLEU"), ("chrf", "chrF")):
        print(summary(f"after {arguments.time} {title}", [item[name] for item in result], arguments.seeds))


def split(corpus: Path, folder: Path) -> tuple[Path, Path, Path]:
    """The pairs to train on; source and reference of the pairs held out, the last sentence with all it has."""
    by_source: dict[str, list[str]] = {}
    with gzip.open(corpus, "rt", encoding="utf-8") as lines:
        for line in lines:
            source, target, *_ = line.rstrip("\n").split("\t")
            by_source.setdefault(source, []).append(target)
    sources = sorted(by_source)
    random.Random(SPLIT_SEED).shuffle(sources)
    held_out: list[tuple[str, str]] = []
    while len(held_out) < HELD_OUT:
        source = sources.pop()
        held_out += [(source, target) for target in by_source[source]]
    rest, source_file, reference = folder / "train.tsv", folder / "test.source", folder / "test.target"
    write(rest, (f"{source}\t{target}" for source in sorted(sources) for target in by_source[source]))
    write(source_file, (source for source, _ in held_out))
    write(reference, (target for _, target in held_out))
    return rest, source_file, reference


def write(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
