"""`heedful classify`."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.streams import DASH, Device, check_outputs, input_lines, output_lines, prepare_torch

if TYPE_CHECKING:
    from heedful.inference.encoder import Encoder


def classify(
    model: Annotated[Path, typer.Argument(help="The folder of a classifier.")],
    input: Annotated[Path, typer.Option("--input", "-i", help="text [TAB text] a line; - is standard input.")] = DASH,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to; - is standard output.")] = DASH,
    labeled: Annotated[Path | None, typer.Option(help="Measure on label TAB text [TAB text] instead.")] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Put a TAB and the probability behind each label.")] = False,
    threads: Annotated[int, typer.Option(help="CPU threads; 0 for all cores.")] = 0,
    precision: Annotated[str, typer.Option(help="auto, float32 or bfloat16.")] = "float32",
    device: Device = "cpu",
) -> None:
    """Say which label fits each line: N lines in, N labels out.

    For example: heedful classify runs/tagger < lines > labels

    With --labeled test.tsv: accuracy and macro-F1 on examples whose labels are known.
    """
    from heedful.inference.encoder import Encoder
    from heedful.interop import open_folder

    check_outputs(output)
    encoder = Encoder(open_folder(model), prepare_torch(threads, precision, device), device)
    encoder.notice = lambda text: print(text, file=sys.stderr)
    if labeled is not None:
        measure(encoder, labeled)
        return
    lines, number = input_lines(input), 1
    with output_lines(output, input) as put:
        while chunk := list(islice(lines, 1000)):
            texts = [line.partition("\t")[::2] for line in chunk]
            for found in encoder.classify([first for first, _ in texts], [second for _, second in texts], number):
                put(f"{found.label}\t{found.probability:.4f}" if scores else found.label)
            number += len(chunk)


def measure(encoder: Encoder, path: Path) -> None:
    """Print accuracy and macro-F1 on labeled examples."""
    from heedful.data.labeled_corpus import read_labeled
    from heedful.evaluation.metrics import label_scores

    examples = read_labeled(path)
    found = encoder.classify([each.text for each in examples], [each.second for each in examples])
    labels = [each.label for each in found], [each.label for each in examples]
    result = label_scores(*labels)
    print(f"accuracy {result['valid_accuracy']:6.2f} %   of {len(examples):,} examples")
    print(f"macro-F1 {result['valid_macro_f1']:6.2f} %   over {len(set(labels[0]).union(labels[1]))} labels")
