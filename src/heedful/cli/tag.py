"""`heedful tag`."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.classify import require_known_labels
from heedful.cli.open_models import open_encoder
from heedful.cli.options import EncoderCompute, OutputFile
from heedful.cli.streams import DASH, check_outputs, input_lines, output_lines


def tag(
    model: Annotated[Path, typer.Argument(help="Folder of a tagger.")],
    compute: EncoderCompute,
    input: Annotated[Path, typer.Option("--input", "-i", help="Sentences, one per line; - is standard input.")] = DASH,
    output: OutputFile = DASH,
    labeled: Annotated[Path | None, typer.Option(help="Evaluate on a CoNLL file instead.")] = None,
) -> None:
    """Tag each word of each line. A line of word TAB tag for each word, a blank line after each sentence (CoNLL).

    For example: heedful tag runs/names < lines > tagged.conll

    Words are divided at white space. With --labeled test.conll, print accuracy and F1 on tagged sentences.
    """
    from heedful.evaluation.tags import tag_scores
    from heedful.formats.conll import read_conll

    check_outputs(output)
    encoder = open_encoder(model, compute)
    if labeled is not None:
        sentences = read_conll(labeled)
        predicted = encoder.tag([sentence.words for sentence in sentences])
        require_known_labels(encoder, labeled, {tag for sentence in sentences for tag in sentence.tags})
        result = tag_scores(
            [[word.tag for word in words] for words in predicted], [sentence.tags for sentence in sentences]
        )
        print(f"accuracy {result['valid_accuracy']:6.2f} %   of {sum(map(len, predicted)):,} words")
        print(f"F1       {result['valid_f1']:6.2f} %   of {len(sentences):,} sentences")
        return
    lines = input_lines(input)
    with output_lines(output, input) as put:
        while chunk := list(islice(lines, 1000)):
            for words in encoder.tag(chunk):
                for word in words:
                    put(f"{word.word}\t{word.tag}")
                put("")
