"""Which setting of a summarizer brings how much: the same number of updates with one ingredient changed at a time.

    python benchmarks/ingredients.py path/to/summarization --corpus debian --updates 250

The folder holds NAME.train.tsv.gz and NAME.valid.tsv.gz (document TAB summary). Every row is the preset tiny on one
thread. Printed are ROUGE-L of validation documents with its bootstrap confidence interval, the validation loss, and the
CPU time of the whole command, loading and encoding included.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

from runs import heedful
from summaries import read_pairs

ROWS = {
    "default": [],
    "no pointer-generator": ["model.pointer=false"],
    "random embeddings instead of LSA": ["train.embedding_init=random"],
    "Adam instead of Muon, same learning rate": ["train.optimizer=adam"],
    "Adam instead of Muon, a third of the learning rate": ["train.optimizer=adam", "train.learning_rate=2e-3"],
    "post-norm instead of pre-norm": ["model.pre_norm=false"],
    "full instead of sampled softmax": ["train.sampled_softmax=0"],
    "all of these": [
        "model.pointer=false", "train.embedding_init=random", "train.optimizer=adam", "train.learning_rate=2e-3",
        "model.pre_norm=false", "train.sampled_softmax=0",
    ],
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--corpus", default="debian")
    parser.add_argument("--updates", type=int, default=250)
    parser.add_argument("--documents", type=int, default=500, help="validation documents that are summarized")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS), metavar="ROW")
    options = parser.parse_args()
    train, valid = (options.folder / f"{options.corpus}.{part}.tsv.gz" for part in ("train", "valid"))
    print("| | ROUGE-L | validation loss | CPU seconds |\n|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        source, reference = folder / "source", folder / "reference"
        pairs = read_pairs(valid)[: options.documents]
        for path, place in ((source, 0), (reference, 1)):
            path.write_text("".join(f"{pair[place]}\n" for pair in pairs), encoding="utf-8")
        for number, name in enumerate(options.rows):
            run, before = folder / str(number), os.times()
            heedful(
                "train", "--task", "summarization", "--preset", "tiny", "--pairs", train, "--valid-pairs", valid,
                "--out", run, f"data.cache_dir={folder / 'cache'}", "train.threads=1", f"train.seed={options.seed}",
                "train.warmup=50", f"train.max_updates={options.updates}", f"train.checkpoint_every={options.updates}",
                "train.valid_sentences=1", "search.length_penalty=0.6", *ROWS[name],
            )  # fmt: skip
            after = os.times()
            seconds = after.children_user + after.children_system - before.children_user - before.children_system
            scores = json.loads(heedful(
                "evaluate", run, "--source", source, "--reference", reference, "--threads", "1", "--json", printed=True
            ))["rougeL"]  # fmt: skip
            loss = json.loads((run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])["valid_loss"]
            interval = f"{scores['mean']:.2f} [{scores['low']:.2f}, {scores['high']:.2f}]"
            print(f"| {name} | {interval} | {loss:.3f} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
