"""Does denoising of plain text help an encoder-decoder that has few pairs? Both ways take the same time.

    python benchmarks/denoising.py debian.{train,valid,test}.tsv.gz --task summarization --pairs 2000 --time 480
    python benchmarks/denoising.py en-hau.{train,dev,test}.tsv --task translation --pairs 3000 --time 480

One side trains on the first pairs of the training file. The other spends a part of the time on denoising the text of
the whole training file (both columns), and starts from that model; it has the vocabulary of that text. Scores of the
first test lines: ROUGE with confidence intervals, or BLEU and chrF. The time is CPU time divided by the number of
threads, so other programs on the machine do not shorten it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
from pathlib import Path

from runs import heedful, heedful_by_cpu_time


def read_columns(path: Path) -> list[tuple[str, str]]:
    """The first two columns of a TSV file, compressed or not."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        rows = (line.rstrip("\n").split("\t") for line in file)
        return [(row[0], row[1]) for row in rows if len(row) >= 2 and row[0].strip() and row[1].strip()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs=3, metavar="TRAIN VALID TEST")
    parser.add_argument("--task", choices=["summarization", "translation"], required=True)
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--time", type=int, default=480, help="seconds of training of each side")
    parser.add_argument("--share", type=float, default=0.5, help="of the time, for denoising")
    parser.add_argument("--documents", type=int, default=500, help="test lines")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    train, valid, test = map(read_columns, options.files)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name, rows in (("pairs.tsv", train[: options.pairs]), ("valid.tsv", valid)):
            (folder / name).write_text("".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
        for name, place in (("source", 0), ("reference", 1)):
            lines = (f"{row[place]}\n" for row in test[: options.documents])
            (folder / name).write_text("".join(lines), encoding="utf-8")
        (folder / "text").write_text("\n\n".join(text for row in train for text in row), encoding="utf-8")
        shared = [f"data.cache_dir={folder / 'cache'}", f"train.threads={options.threads}"]
        shared += [f"train.seed={options.seed}"]
        files = ["--task", options.task, "--pairs", folder / "pairs.tsv", "--valid-pairs", folder / "valid.tsv"]
        first = round(options.share * options.time)
        sides: dict[str, tuple[list[str | Path], int]] = {
            "pairs alone": ([], options.time),
            "denoising first": (["--init", folder / "denoiser"], options.time - first),
        }
        for name, (init, seconds) in sides.items():
            run = folder / name.replace(" ", "-")
            if init:
                text = ["--task", "denoising", "--text", folder / "text", "--out", folder / "denoiser"]
                heedful_by_cpu_time("train", *text, "--time", f"{first}s", *shared, threads=options.threads)
            timed = [*init, "--time", f"{seconds}s"]
            heedful_by_cpu_time("train", *files, "--out", run, *timed, *shared, threads=options.threads)
            scores = json.loads(heedful(
                "evaluate", run, "--source", folder / "source", "--reference", folder / "reference", "--json",
                printed=True,
            ))  # fmt: skip
            kinds = ("rouge1", "rouge2", "rougeL") if options.task == "summarization" else ("bleu", "chrf")
            print(f"{name}: { ({kind: scores[kind] for kind in kinds}) }", flush=True)


if __name__ == "__main__":
    main()
