"""Summaries: ROUGE of heedful after a given time, beside three baselines, with bootstrap confidence intervals.

    python benchmarks/summarization.py path/to/summarization --corpus acl debian --time 60m
    python benchmarks/summarization.py path/to/summarization --corpus acl --time 120m --threads 1 --together
    python benchmarks/summarization.py path/to/summarization --corpus acl --time 60m --denoise 20m --skip bart

The folder holds NAME.train.tsv.gz, NAME.valid.tsv.gz and NAME.test.tsv.gz (document TAB summary). Baselines: the first
words of the document, as many as a training summary has on average (lead); the summary of the most similar training
document by tf-idf (nearest); and a BART of transformers of the same size and vocabulary, trained with AdamW for as long
(bart_loop.py). All are scored on the whole test set, and on the documents that have no near-copy in training. With
--denoise, denoising of the training text takes that part of heedful's time. Training the vocabulary and encoding the
corpus count for neither side. The time is CPU time divided by the number of threads on both sides, so other programs on
the machine do not shorten it; --together trains both sides at once. Each of the --bart-rates is a BART of its own,
which has all of the time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from heedful import load
from heedful.config import parse_duration
from heedful.evaluation.rouge import evaluate_summaries
from heedful.inference.summarizer import Summarizer
from runs import heedful_by_cpu_time
from summaries import TfIdf, read_pairs

NEAR_COPY = 0.8  # cosine of tf-idf vectors from which on a training document is a near-copy
Words = list[str | Path]


def describe_rows(name: str, summaries: Sequence[str], references: Sequence[str], fresh: Sequence[bool]) -> list[str]:
    """Table rows: ROUGE on all test documents, and on those without a near-copy in training."""
    rows = []
    for what, chosen in (("all", [True] * len(fresh)), ("no near-copy", fresh)):
        documents = [place for place, keep in enumerate(chosen) if keep]
        result = evaluate_summaries(
            [summaries[place] for place in documents], [references[place] for place in documents]
        )
        intervals = (result.rouge1, result.rouge2, result.rougeL)
        scores = " | ".join(f"{score.mean:.2f} [{score.low:.2f}, {score.high:.2f}]" for score in intervals)
        rows.append(f"| {name} | {what} ({len(documents):,}) | {scores} |")
    return rows


class Comparison:
    """Both sides on one corpus; their files are in `scratch`."""

    def __init__(self, corpus: str, arguments: argparse.Namespace, scratch: Path) -> None:
        self.arguments, self.scratch, self.corpus = arguments, scratch, corpus
        self.files = {part: arguments.folder / f"{corpus}.{part}.tsv.gz" for part in ("train", "valid", "test")}
        self.train, self.test = read_pairs(self.files["train"]), read_pairs(self.files["test"])[: arguments.documents]
        self.text, self.run = scratch / f"{corpus}.txt", scratch / corpus
        self.prepared = scratch / f"{corpus}-prepared"
        self.bart = {rate: scratch / f"{corpus}-bart-{rate:g}.json" for rate in arguments.bart_rates}

    def prepare(self) -> None:
        """Vocabulary, encoded corpus and the sizes of the model, before any time counts."""
        if self.arguments.denoise:
            lines = (f"{target}\n{source}\n" for source, target in self.train)
            self.text.write_text("\n".join(lines), encoding="utf-8")
        one = "train.max_updates=1"
        self._train(self.prepared, [one], [one, "train.valid_sentences=1"])

    def train_heedful(self) -> None:
        time, denoise = parse_duration(self.arguments.time), parse_duration(self.arguments.denoise or "0s")
        self._train(self.run, ["--time", f"{denoise:.0f}s"], ["--time", f"{time - denoise:.0f}s"])

    def start_bart(self, rate: float) -> subprocess.Popen[bytes]:
        program, arguments = Path(__file__).with_name("bart_loop.py"), self.arguments
        words: Words = [program, self.prepared, self.files["train"], self.files["test"], "--out", self.bart[rate]]
        words += ["--time", arguments.time, "--threads", arguments.threads, "--documents", arguments.documents]
        words += ["--rate", rate]
        return subprocess.Popen([sys.executable, *map(str, words)])

    def rows(self) -> list[str]:
        """The table: every system on the test documents."""
        documents, references = [source for source, _ in self.test], [target for _, target in self.test]
        index = TfIdf([source for source, _ in self.train])
        nearest = [index.nearest(document) for document in documents]
        fresh = [cosine < NEAR_COPY for _, cosine in nearest]
        words = round(sum(len(target.split()) for _, target in self.train) / len(self.train))
        systems = {
            "lead": [" ".join(document.split()[:words]) for document in documents],
            "nearest": [self.train[number][1] for number, _ in nearest],
        }
        for rate, summaries in self.bart.items():
            if summaries.exists():
                systems[f"BART loop, rate {rate:g}"] = json.loads(summaries.read_text(encoding="utf-8"))
        if self.run.exists():
            systems["heedful"] = load(self.run, kind=Summarizer).summarize(documents)
        return [row for name, texts in systems.items() for row in describe_rows(name, texts, references, fresh)]

    def _train(self, out: Path, denoising: Words, summarization: Words) -> None:
        shared: Words = [f"data.cache_dir={self.scratch / 'cache'}", f"train.threads={self.arguments.threads}"]
        start: Words = []
        words: Words
        if self.arguments.denoise:
            start = ["--init", out.with_name(f"{out.name}-denoising")]
            words = ["--task", "denoising", "--text", self.text, "--out", start[1], *denoising, *shared]
            heedful_by_cpu_time("train", *words, threads=self.arguments.threads)
        pairs: Words = ["--pairs", self.files["train"], "--valid-pairs", self.files["valid"], "--out", out]
        words = ["--task", "summarization", *pairs, *start, *summarization, *shared, *self.arguments.settings]
        heedful_by_cpu_time("train", *words, threads=self.arguments.threads)


def compare(corpus: str, arguments: argparse.Namespace, scratch: Path) -> list[str]:
    comparison = Comparison(corpus, arguments, scratch)
    bart, ours = "bart" not in arguments.skip, "heedful" not in arguments.skip
    if bart or ours:
        comparison.prepare()
    processes = []
    for rate in arguments.bart_rates if bart else []:
        processes.append(comparison.start_bart(rate))
        if not arguments.together:
            processes[-1].wait()
    if ours:
        before = os.times()
        comparison.train_heedful()
        computed = os.times().children_user - before.children_user + os.times().children_system - before.children_system
        print(f"heedful: {computed / 60:.1f} minutes of computation, encoding the corpus included", flush=True)
    codes = [process.wait() for process in processes]
    if any(codes):
        sys.exit("the BART loop failed")
    return comparison.rows()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of NAME.train.tsv.gz and so on")
    parser.add_argument("--corpus", nargs="+", default=["acl", "debian"])
    parser.add_argument("--time", default="60m", help="of training, for heedful and for BART")
    parser.add_argument("--denoise", metavar="TIME", help="of heedful's time, for denoising the training text first")
    parser.add_argument("--threads", type=int, default=2, help="of each side")
    parser.add_argument("--together", action="store_true", help="train all at once")
    parser.add_argument("--bart-rates", type=float, nargs="+", default=[1e-3], help="learning rates of the BART loop")
    parser.add_argument("--documents", type=int, default=2000, help="of the test set")
    parser.add_argument("--skip", nargs="+", choices=["heedful", "bart"], default=[], help="sides that are left out")
    parser.add_argument("--out", type=Path, help="keep the runs here")
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE", help="settings other than the automatic ones")
    arguments = parser.parse_intermixed_args()
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    with tempfile.TemporaryDirectory() as folder:
        for corpus in arguments.corpus:
            rows = compare(corpus, arguments, arguments.out or Path(folder))
            print(f"\n{corpus}, {arguments.time}, {arguments.threads} thread(s) a side\n")
            print("| | test documents | ROUGE-1 | ROUGE-2 | ROUGE-L |\n|---|---|---|---|---|")
            print("\n".join(rows), flush=True)


if __name__ == "__main__":
    main()
