"""`heedful answer`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.open_models import open_encoder
from heedful.cli.options import EncoderCompute
from heedful.cli.streams import DASH, input_lines


def answer(
    model: Annotated[Path, typer.Argument(help="Folder of a question answering model.")],
    compute: EncoderCompute,
    question: Annotated[str | None, typer.Option("--question", "-q", help="The question.")] = None,
    input: Annotated[Path, typer.Option("--input", "-i", help="The passage; - is standard input.")] = DASH,
    labeled: Annotated[Path | None, typer.Option(help="Evaluate on a SQuAD file instead.")] = None,
    must_answer: Annotated[
        bool, typer.Option("--must-answer", help="Give the best span even if no answer seems more probable.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print text, start, end and score as JSON.")] = False,
) -> None:
    """Answer a question with a span of a passage. An empty line means that the passage has no answer.

    For example: heedful answer runs/qa --question "Where does the dog sleep?" < passage.txt

    With --labeled dev.json, print exact match and F1 on the questions of a SQuAD file.
    """
    from dataclasses import asdict
    from json import dumps

    from heedful.errors import SettingError
    from heedful.evaluation.answers import answer_scores
    from heedful.formats.squad import read_squad
    from heedful.text.normalization import replace_surrogates

    if (question is None) == (labeled is None):
        raise SettingError("give --question and a passage on standard input, or --labeled with a SQuAD file.")
    encoder = open_encoder(model, compute)
    if labeled is not None:
        examples = read_squad(labeled)
        answers = encoder.answer_batch([(each.question, each.context) for each in examples], not must_answer)
        result = answer_scores([each.text for each in answers], [[text for _, text in e.answers] for e in examples])
        print(f"exact match {result['valid_exact']:6.2f} %   of {len(examples):,} questions")
        print(f"F1          {result['valid_f1']:6.2f} %")
        return
    assert question is not None
    context = "\n".join(input_lines(input))
    best = encoder.answer(replace_surrogates(question), context, not must_answer)
    print(dumps(asdict(best), ensure_ascii=False) if json else " ".join(best.text.split()))
