"""`heedful classify`."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.open_models import open_encoder
from heedful.cli.options import EncoderCompute, OutputFile
from heedful.cli.streams import DASH, check_outputs, input_lines, output_lines
from heedful.errors import DataError, SettingError, quote

if TYPE_CHECKING:
    from heedful.data.labeled_corpus import LabeledExample
    from heedful.inference.encoder import Encoder


def classify(
    model: Annotated[Path, typer.Argument(help="Folder of a classifier or of a regression model.")],
    compute: EncoderCompute,
    input: Annotated[
        Path, typer.Option("--input", "-i", help="Lines of text, or text TAB text; - is standard input.")
    ] = DASH,
    output: OutputFile = DASH,
    labeled: Annotated[
        Path | None, typer.Option(help="Evaluate on a file of label or number TAB text [TAB text] instead.")
    ] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Write a TAB and the probability after each label.")] = False,
) -> None:
    """Predict the label of each line. A regression model predicts a number. N lines in, N out.

    For example: heedful classify runs/topics < lines > labels

    With --labeled test.tsv, print accuracy and macro-F1 on labeled examples, or correlations.
    """
    check_outputs(output)
    encoder = open_encoder(model, compute)
    if scores and encoder.config.label_kind == "regression":
        raise SettingError(f"--scores has no effect: {model} predicts numbers, not labels; leave it out.")
    if labeled is not None:
        measure(encoder, labeled)
        return
    lines, number = input_lines(input), 1
    with output_lines(output, input) as put:
        while chunk := list(islice(lines, 1000)):
            texts = [line.partition("\t")[::2] for line in chunk]
            both = [first for first, _ in texts], [second for _, second in texts]
            if encoder.config.label_kind == "regression":
                for value in encoder.score(*both, number):
                    put(f"{value:.4f}")
            else:
                for best in encoder.classify(*both, number):
                    put(f"{best.label}\t{best.probability:.4f}" if scores else best.label)
            number += len(chunk)


def measure(encoder: Encoder, path: Path) -> None:
    """Print accuracy and macro-F1 on labeled examples, or the correlations of a regression model."""
    from heedful.data.labeled_corpus import read_labeled
    from heedful.evaluation.metrics import label_scores

    if encoder.config.label_kind == "regression":
        print_correlations(read_labeled(path, numbers=True), encoder.score)
        return
    examples = read_labeled(path)
    both = [example.text for example in examples], [example.second for example in examples]
    predictions = encoder.classify(*both)
    require_known_labels(encoder, path, {example.label for example in examples})
    predicted, expected = [best.label for best in predictions], [example.label for example in examples]
    result = label_scores(predicted, expected)
    print(f"accuracy {result['valid_accuracy']:6.2f} %   of {len(examples):,} examples")
    print(f"macro-F1 {result['valid_macro_f1']:6.2f} %   over {len({*predicted, *expected})} labels")


def require_known_labels(encoder: Encoder, path: Path, labels: set[str]) -> None:
    """Refuse to score a model on a file none of whose labels it predicts."""
    if labels.isdisjoint(encoder.config.labels):
        named, known = (", ".join(map(quote, sorted(some)[:3])) for some in (labels, encoder.config.labels))
        raise DataError(
            f"{path} has no label of {encoder.folder.path}: the file has {named}, and the model {known}; give a file "
            "with the labels of its training."
        )


def print_correlations(examples: list[LabeledExample], score: Callable[[list[str], list[str]], list[float]]) -> None:
    """Print the correlations of given numbers with the scores of the same pairs of texts."""
    from heedful.evaluation.metrics import correlation_scores

    scores = score([example.text for example in examples], [example.second for example in examples])
    result = correlation_scores(scores, [float(example.label) for example in examples])
    print(f"Pearson  {result['valid_pearson']:6.2f} %   of {len(examples):,} examples")
    print(f"Spearman {result['valid_spearman']:6.2f} %")
