"""Labels of tokens: the tag of each word, and the start and end of an answer in a passage.

Words and passages are encoded as ids with the characters that each id stands for. Texts that are longer than the model
takes are divided into overlapping windows. Knows files and ids, and no torch.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from heedful.config.model_config import LabelKind
from heedful.data.labeled_corpus import EncodedExample, LabeledFormat
from heedful.errors import DataError
from heedful.formats.conll import TaggedSentence, read_conll
from heedful.formats.line_files import DroppedLines
from heedful.formats.squad import Question, read_squad
from heedful.text import Tokenizer
from heedful.text.words import Span, words_of_spans

UNLABELED = -100  # of tokens that no loss is computed for; torch's default for ignored labels
OVERLAP = 128  # tokens that a window shares with the one before, at most half of the window
LONGEST_QUESTION = 64  # tokens


@dataclass(frozen=True)
class TokenWindow:
    """A part of a text: its first token and its ids."""

    start: int
    ids: list[int]


def windows(ids: list[int], size: int) -> list[TokenWindow]:
    """Overlapping parts of at most `size` tokens, the last one at the end of the text; at least one."""
    overlap = min(OVERLAP, size // 2)
    starts = [*range(0, max(1, len(ids) - size), size - overlap), *([len(ids) - size] if len(ids) > size else [])]
    return [TokenWindow(start, ids[start : start + size]) for start in starts]


def central_window(token: int, parts: list[TokenWindow]) -> int:
    """The number of the window in which a token has the most context on its shorter side."""

    def context(number: int) -> int:
        part = parts[number]
        return min(token - part.start, part.start + len(part.ids) - 1 - token)

    return max(range(len(parts)), key=context)


def encode_words(words: tuple[str, ...], tokenizer: Tokenizer) -> tuple[list[int], list[int | None]]:
    """Ids of the words of a sentence, and the first token of each word; None for a word without tokens."""
    text = " ".join(words)
    first: list[int | None] = [None] * len(words)
    for token, word in enumerate(words_of_spans(text, tokenizer.spans(text))):
        if 0 <= word < len(words) and first[word] is None:
            first[word] = token
    return tokenizer.encode(text), first


class TaggingFormat(LabeledFormat[TaggedSentence]):
    """CoNLL files: the tag of a word is the label of its first token."""

    kind: ClassVar[LabelKind] = "tagging"

    def read(self, path: Path, dropped: DroppedLines | None = None) -> list[TaggedSentence]:
        return read_conll(path, dropped)

    def texts(self, example: TaggedSentence) -> tuple[str, ...]:
        return (" ".join(example.words),)

    def label_counts(self, examples: list[TaggedSentence]) -> dict[str, int]:
        counts = Counter(tag for example in examples for tag in example.tags)
        return {tag: counts[tag] for tag in sorted(counts)}

    def encode(
        self, example: TaggedSentence, labels: list[str], tokenizer: Tokenizer, max_length: int
    ) -> list[EncodedExample]:
        ids, first = encode_words(example.words, tokenizer)
        numbers = [UNLABELED] * len(ids)
        for token, tag in zip(first, example.tags, strict=True):
            if token is not None:
                numbers[token] = labels.index(tag) if tag in labels else UNLABELED
        return [
            EncodedExample(part.ids, [], numbers[part.start : part.start + len(part.ids)])
            for part in windows(ids, max_length - 2)
        ]

    def check(self, train: list[TaggedSentence], valid: list[TaggedSentence], where: str) -> None:
        tags = {tag for sentence in train for tag in sentence.tags}
        if len(tags) < 2:
            raise DataError(f"{where} has one tag only ({next(iter(tags))}); a tagger needs two or more.")


@dataclass(frozen=True)
class PassageWindows:
    """A question and the windows of a passage that fit beside it, with the characters of every passage token."""

    question: list[int]
    parts: list[TokenWindow]
    spans: list[Span]

    @property
    def offset(self) -> int:
        """The position of a window's first token: after [CLS], the question and [SEP]."""
        return len(self.question) + 2


def encode_passage(question: str, context: str, tokenizer: Tokenizer, max_length: int) -> PassageWindows:
    """A question, truncated to a quarter of the model's length, with all windows of a passage."""
    question_ids = tokenizer.encode(question)[: max(1, min(LONGEST_QUESTION, max_length // 4))]
    ids = tokenizer.encode(context)
    return PassageWindows(
        question_ids, windows(ids, max(2, max_length - len(question_ids) - 3)), tokenizer.spans(context)
    )


class AnswerFormat(LabeledFormat[Question]):
    """SQuAD files: the labels are the positions of the first and the last token of an answer, 0 without one."""

    kind: ClassVar[LabelKind] = "question-answering"

    def read(self, path: Path, dropped: DroppedLines | None = None) -> list[Question]:
        return read_squad(path, dropped)

    def texts(self, example: Question) -> tuple[str, ...]:
        return (example.context, example.question)

    def key(self, example: Question) -> str:
        return example.context

    def label_counts(self, examples: list[Question]) -> dict[str, int]:
        answered = sum(bool(example.answers) for example in examples)
        return {"start": answered, "end": answered}

    def encode(
        self, example: Question, labels: list[str], tokenizer: Tokenizer, max_length: int
    ) -> list[EncodedExample]:
        passage = encode_passage(example.question, example.context, tokenizer, max_length)
        answer = answer_tokens(example, passage.spans)
        rows = []
        for part in passage.parts:
            inside = answer is not None and part.start <= answer[0] and answer[1] < part.start + len(part.ids)
            places = [passage.offset + token - part.start for token in answer] if answer and inside else [0, 0]
            rows.append(EncodedExample(passage.question, part.ids, places))
        return rows

    def check(self, train: list[Question], valid: list[Question], where: str) -> None:
        if not any(question.answers for question in train):
            raise DataError(f"no question of {where} has an answer; give some that have.")


def answer_tokens(question: Question, spans: list[Span]) -> tuple[int, int] | None:
    """The first and the last token of the first answer."""
    if not question.answers:
        return None
    start, text = question.answers[0]
    tokens = [token for token, (a, b) in enumerate(spans) if a < start + len(text) and b > start and b > a]
    return (tokens[0], tokens[-1]) if tokens else None
