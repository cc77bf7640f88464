"""SQuAD files (JSON, versions 1.1 and 2.0) -> questions about passages. Knows neither vocabularies nor ids."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heedful.errors import DataError
from heedful.formats.line_files import BadLine, DroppedLines, read_lines

ANSWER = '{"text": …, "answer_start": …}'
SHAPE = '{"data": [{"paragraphs": [{"context": …, "qas": [{"id": …, "question": …, "answers": [' + ANSWER + "]}]}]}]}"


@dataclass(frozen=True)
class Question:
    """A question about a passage, and its answers as (start, text); one without answers cannot be answered."""

    id: str
    question: str
    context: str
    answers: tuple[tuple[int, str], ...] = ()


def read_squad(path: Path, dropped: DroppedLines | None = None) -> list[Question]:
    """All questions; one that is incomplete, or whose answer is elsewhere, is counted in `dropped` or is an error."""
    questions = []
    for number, question in enumerate(_questions(path), 1):
        if isinstance(question, Question):
            questions.append(question)
            continue
        if dropped is None:
            raise DataError(f"question {number} of {path} {question}; mend or remove it.")
        dropped.add(BadLine(question, number, question))
    if not questions:
        why = dropped.first("question") if dropped else ""
        raise DataError(f"{path} holds no questions{why}; SQuAD's format is {SHAPE}.")
    return questions


def _questions(path: Path) -> Iterator[Question | str]:
    """Each question, or what is wrong with it."""
    try:
        tree = json.loads("\n".join(read_lines(path)))
        paragraphs = [paragraph for article in tree["data"] for paragraph in article["paragraphs"]]
        rows = [(paragraph["context"], row) for paragraph in paragraphs for row in paragraph["qas"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        what = "has another structure"
        if isinstance(error, KeyError):
            what = f"has no {error}"
        elif isinstance(error, json.JSONDecodeError):
            what = f"is not JSON (line {error.lineno}, column {error.colno})"
        raise DataError(f"{path} {what}; SQuAD's format is {SHAPE}.") from None
    for context, row in rows:
        yield _question(context, row)


def _question(context: Any, row: Any) -> Question | str:
    try:
        answers = [] if row.get("is_impossible") else row.get("answers", [])
        spans = tuple((answer["answer_start"], answer["text"]) for answer in answers)
        question = Question(str(row["id"]), row["question"], context, tuple(dict.fromkeys(spans)))
    except KeyError as error:
        return f"has no {error}"
    except (TypeError, AttributeError):
        return "has another structure"
    texts = (question.question, context, *(text for _, text in question.answers))
    if not all(isinstance(text, str) and text.strip() for text in texts):
        return "has an empty question, context or answer"
    if any(
        not isinstance(start, int) or start < 0 or context[start : start + len(text)] != text
        for start, text in question.answers
    ):
        return "has an answer whose text does not stand at its answer_start, in characters, in the context"
    return question
