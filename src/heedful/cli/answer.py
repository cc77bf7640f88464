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
    if question is not None and not question.strip():
        raise SettingError("--question is empty; ask something.")
    encoder = open_encoder(model, compute)
    if labeled is not None:
        examples = read_squad(labeled)
        answers = encoder.answer_batch([(example.question, example.context) for example in examples], not must_answer)
        references = [[text for _, text in example.answers] for example in examples]
        rows = list(zip([best.text for best in answers], references, strict=True))
        parts = {"questions": rows, "with an answer": [row for row in rows if row[1]]}
        parts["without an answer"] = [row for row in rows if not row[1]]
        for name, part in parts.items() if parts["without an answer"] else [("questions", rows)]:
            if part:
                result = answer_scores(*zip(*part, strict=True))
                scores = f"exact match {result['valid_exact']:6.2f} %   F1 {result['valid_f1']:6.2f} %"
                print(f"{scores}   of {len(part):,} {name}")
        return
    assert question is not None
    context = "\n".join(input_lines(input))
    if not context.strip():
        where = "standard input" if input == DASH else str(input)
        raise SettingError(f"the passage is empty ({where}); give the text that holds the answer.")
    best = encoder.answer(replace_surrogates(question), context, not must_answer)
    print(dumps(asdict(best), ensure_ascii=False) if json else " ".join(best.text.split()))
