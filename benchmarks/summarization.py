"""Summaries: ROUGE of heedful after a given time, beside three baselines, with bootstrap confidence intervals.

    python benchmarks/summarization.py path/to/summarization --corpus debian acl --time 60m
    python benchmarks/summarization.py path/to/summarization --corpus debian --time 20m --pretrain 10m

The folder holds NAME.train.tsv.gz, NAME.valid.tsv.gz and NAME.test.tsv.gz (document TAB summary). Baselines: the first
words of the document, as many as a training summary has on average (lead); the summary of the most similar document
by tf-idf (nearest); and a BART of transformers of the same size, trained with AdamW for the same time with heedful's
vocabulary (bart). The nearest summary is also scored on the test documents that have no near-copy in training, as are
all others. With --pretrain, denoising of the training text takes that part of the time.
"""

from __future__ import annotations

import argparse
import gzip
import math
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from heedful.config import parse_duration
from heedful.evaluation.rouge import evaluate_summaries
from runs import heedful

NEAR_COPY = 0.8  # cosine of tf-idf vectors from which on a training document is a near-copy
Pairs = list[tuple[str, str]]


def read(path: Path) -> Pairs:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = (line.rstrip("\n").split("\t") for line in file)
        return [(row[0], row[1]) for row in rows if len(row) >= 2]


class TfIdf:
    """Cosine similarity of bags of words over an inverted index of the training documents."""

    def __init__(self, documents: Sequence[str]) -> None:
        bags = [Counter(document.lower().split()) for document in documents]
        counts = Counter(word for bag in bags for word in bag)
        self.idf = {word: math.log(len(bags) / count) for word, count in counts.items()}
        postings: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for number, bag in enumerate(bags):
            for word, weight in self._vector(bag).items():
                postings[word].append((number, weight))
        self.index = {
            word: (np.array([number for number, _ in entries]), np.array([weight for _, weight in entries]))
            for word, entries in postings.items()
        }
        self.size = len(bags)

    def nearest(self, document: str) -> tuple[int, float]:
        """The most similar training document and its cosine."""
        scores = np.zeros(self.size)
        for word, weight in self._vector(Counter(document.lower().split())).items():
            if word in self.index:
                numbers, weights = self.index[word]
                scores[numbers] += weight * weights
        return int(scores.argmax()), float(scores.max())

    def _vector(self, bag: Counter[str]) -> dict[str, float]:
        weights = {word: (1 + math.log(count)) * self.idf.get(word, 0.0) for word, count in bag.items()}
        norm = math.sqrt(sum(weight**2 for weight in weights.values())) or 1.0
        return {word: weight / norm for word, weight in weights.items() if weight}


def train_bart(folder: Path, train: Pairs, seconds: float, documents: Sequence[str]) -> list[str]:
    """A BART of the size of the model in `folder`, trained for so long; its summaries of the documents."""
    import torch
    from transformers import BartConfig, BartForConditionalGeneration

    from heedful.data.batch import collate
    from heedful.data.bucketing import plan_batches
    from heedful.data.pairs import Pairs as EncodedPairs
    from heedful.data.pairs import RaggedIds
    from heedful.storage.folder import load_folder

    opened = load_folder(folder)
    config, tokenizer = opened.config, opened.tokenizer
    longest = config.max_length - 1
    sources = [ids[:longest] for ids in tokenizer.encode_batch([text for text, _ in train])]
    targets = tokenizer.encode_batch([text for _, text in train])
    pairs = EncodedPairs(RaggedIds.of(sources), RaggedIds.of(targets))
    torch.manual_seed(1)
    model = BartForConditionalGeneration(
        BartConfig(
            vocab_size=config.vocab_size, d_model=config.d_model, encoder_layers=config.encoder_layers,
            decoder_layers=config.decoder_layers, encoder_ffn_dim=config.d_ff, decoder_ffn_dim=config.d_ff,
            encoder_attention_heads=config.n_heads, decoder_attention_heads=config.n_heads, dropout=0.1,
            max_position_embeddings=config.max_length, pad_token_id=config.pad_id, bos_token_id=config.bos_id,
            eos_token_id=config.eos_id, decoder_start_token_id=config.bos_id, forced_eos_token_id=None,
        )
    ).train()  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    began, epoch = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        for rows in plan_batches(pairs.source_lengths, pairs.target_lengths, 4096, 1, epoch):
            passed = (time.perf_counter() - began) / seconds
            if passed >= 1:
                break
            optimizer.param_groups[0]["lr"] = 1e-3 * min(1.0, passed / 0.03, 1 - passed)
            batch = collate(pairs, np.asarray(rows), tokenizer.specials)
            labels = batch.labels.masked_fill(batch.labels == config.pad_id, -100)
            logits = model(
                input_ids=batch.source, attention_mask=batch.source != config.pad_id,
                decoder_input_ids=batch.decoder_input,
            ).logits  # fmt: skip
            torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), labels.flatten(), ignore_index=-100, label_smoothing=0.1
            ).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        epoch += 1
    print(f"  bart: {epoch} epochs begun", flush=True)
    return _generate(model.eval(), tokenizer, [ids[:longest] for ids in tokenizer.encode_batch(documents)], opened)


def _generate(model: object, tokenizer: object, sources: list[list[int]], opened: object) -> list[str]:
    import torch

    summaries = []
    for at in range(0, len(sources), 50):
        rows = [[*ids, tokenizer.eos_id] for ids in sources[at : at + 50]]
        ids = torch.full((len(rows), max(map(len, rows))), tokenizer.pad_id)
        for row, source in zip(ids, rows, strict=True):
            row[: len(source)] = torch.tensor(source)
        with torch.inference_mode():
            output = model.generate(
                ids,
                attention_mask=(ids != tokenizer.pad_id).long(),
                num_beams=4,
                max_length=opened.search.max_length + 1,
            )
        summaries += [tokenizer.decode([i for i in row if i != tokenizer.pad_id]) for row in output[:, 1:].tolist()]
    return summaries


def print_row(name: str, summaries: Sequence[str], references: Sequence[str], fresh: Sequence[bool]) -> None:
    """ROUGE on all test documents, and on those without a near-copy in training."""
    for what, chosen in (("all", [True] * len(fresh)), ("no near-copy", fresh)):
        kept = [place for place, keep in enumerate(chosen) if keep]
        result = evaluate_summaries([summaries[place] for place in kept], [references[place] for place in kept])
        scores = "  ".join(str(interval).strip() for interval in (result.rouge1, result.rouge2, result.rougeL))
        print(f"  {name:<10} {what:<13} {len(kept):>5} documents   ROUGE-1, -2, -L: {scores}", flush=True)


def measure(folder: Path, corpus: str, asked: argparse.Namespace, scratch: Path) -> None:
    files = {part: folder / f"{corpus}.{part}.tsv.gz" for part in ("train", "valid", "test")}
    train, test = read(files["train"]), read(files["test"])[: asked.documents]
    documents, references = [source for source, _ in test], [target for _, target in test]
    print(f"{corpus}: {len(train):,} training pairs, {len(test):,} test documents", flush=True)
    index = TfIdf([source for source, _ in train])
    nearest = [index.nearest(document) for document in documents]
    fresh = [cosine < NEAR_COPY for _, cosine in nearest]
    words = round(sum(len(target.split()) for _, target in train) / len(train))
    print_row("lead", [" ".join(document.split()[:words]) for document in documents], references, fresh)
    print_row("nearest", [train[number][1] for number, _ in nearest], references, fresh)
    run, seconds = scratch / corpus, parse_duration(asked.time)
    start: list[str | Path] = []
    if asked.pretrain:
        text = scratch / f"{corpus}.txt"
        text.write_text("\n\n".join(f"{target}\n{source}" for source, target in train), encoding="utf-8")
        pretrained = scratch / f"{corpus}-denoising"
        heedful("train", "--task", "denoising", "--text", text, "--out", pretrained, "--time", asked.pretrain)
        seconds -= parse_duration(asked.pretrain)
        start = ["--init", pretrained]
    options = ["--valid-pairs", files["valid"], "--out", run, "--time", f"{seconds:.0f}s", *start, *asked.settings]
    heedful("train", "--task", "summarization", "--pairs", files["train"], *options)
    from heedful import load
    from heedful.inference.summarizer import Summarizer

    print_row("heedful", load(run, kind=Summarizer).summarize(documents), references, fresh)
    if not asked.no_bart:
        print_row("bart", train_bart(run, train, parse_duration(asked.time), documents), references, fresh)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of NAME.train.tsv.gz and so on")
    parser.add_argument("--corpus", nargs="+", default=["debian", "acl"])
    parser.add_argument("--time", default="60m", help="of training, for heedful and for BART; pre-training included")
    parser.add_argument("--pretrain", metavar="TIME", help="of denoising the training text first")
    parser.add_argument("--documents", type=int, default=2000, help="of the test set")
    parser.add_argument("--no-bart", action="store_true", help="leave the BART of transformers out")
    parser.add_argument("--out", type=Path, help="keep the runs here")
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE", help="settings other than the automatic ones")
    asked = parser.parse_intermixed_args()
    with tempfile.TemporaryDirectory() as scratch:
        for corpus in asked.corpus:
            measure(asked.folder, corpus, asked, asked.out or Path(scratch))


if __name__ == "__main__":
    main()
