"""Alignment error rate on the embedded grammar, whose true alignments are known.

    heedful demo --out runs/demo
    python benchmarks/alignment_error.py runs/demo/model
    python benchmarks/alignment_error.py runs/demo/model --reverse runs/reverse

`--reverse` is a translator from German to English, trained on the same files with the sides swapped. Beside what
`heedful align` gives, two common choices without any thought: the mean of the heads of one layer.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch

from heedful import demo
from heedful.inference.aligner import Aligner, align_both
from heedful.inference.alignment import HeadChoice, alignment_error
from heedful.inference.results import Alignment
from heedful.storage.folder import load_folder

GOAL = 0.10


def report(name: str, result: Sequence[Alignment], true: Sequence[frozenset[tuple[int, int]]]) -> float:
    right = sum(len(set(actual) & expected) for actual, expected in zip(result, true, strict=True))
    precision, recall = right / sum(map(len, result)), right / sum(map(len, true))
    error = alignment_error(result, true)
    print(f"{name:36} AER {error:.3f}   precision {precision:.3f}   recall {recall:.3f}", flush=True)
    return error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="an English-German translator trained on the embedded grammar")
    parser.add_argument("--reverse", type=Path, help="a German-English one")
    parser.add_argument("--sentences", type=int, default=500)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    pairs = demo.splits().test[: arguments.sentences]
    texts, true = [(pair.source, pair.target) for pair in pairs], [pair.alignment for pair in pairs]
    folder = load_folder(arguments.model)
    layers, heads = folder.model.config.decoder_layers, folder.model.config.n_heads
    for layer in dict.fromkeys((max(0, layers - 2), layers - 1)):
        choice = HeadChoice(tuple((layer, head) for head in range(heads)))
        report(f"mean of layer {layer}", list(Aligner(folder, choice, marks=True).align(texts)), true)
    aligner = Aligner(folder, marks=True)
    error = report("heedful align", list(aligner.align(texts)), true)
    assert aligner.choice is not None
    print(f"  read off {', '.join(aligner.choice.names)}{', once a word was read' if aligner.choice.shift else ''}")
    report("each pair by itself", [next(iter(Aligner(folder, marks=True).align([text]))) for text in texts], true)
    if arguments.reverse is not None:
        both = align_both(Aligner(folder, marks=True), Aligner(load_folder(arguments.reverse), marks=True), texts)
        report("heedful align --reverse", list(both), true)
    print(f"at most {GOAL:.2f} is wanted: {'reached' if error <= GOAL else 'NOT reached'}")


if __name__ == "__main__":
    main()
