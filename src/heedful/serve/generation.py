"""What a GPT and a BERT do with the requests they are given, one step at a time."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

from heedful.errors import SettingError
from heedful.inference.encoder import Encoder
from heedful.inference.generator import GeneratedText, GenerationBatch, Generator, TextDelta
from heedful.serve.logs import trace
from heedful.serve.messages import Counts, Event, WorkerTask

WRITTEN = 64  # samples of texts that are written at once


@dataclass
class GenerationRequest:
    """The task that a text is for, and how many tokens were read and written for it."""

    task: int
    prompt_tokens: int
    completion_tokens: int = 0


class GenerationWorkload:
    """A GPT that writes the texts of all requests together, a token of each at a time."""

    def __init__(self, generator: Generator) -> None:
        self.generator = generator
        self.counts = Counts()
        self.texts = GenerationBatch(generator)
        self.waiting: deque[GeneratedText] = deque()
        self.tasks: dict[GeneratedText, GenerationRequest] = {}

    def add(self, task: WorkerTask) -> None:
        asked = dict(task.asked)
        prompt, n, most = asked.pop("prompt"), asked.pop("n"), asked.get("best", 0)
        if most > self.generator.model.config.vocab_size:
            raise SettingError(f"{most} most probable tokens were asked for, and the vocabulary has fewer.")
        text = self.generator.text(prompt, range(n), **asked)
        self.tasks[text] = GenerationRequest(task.id, len(text.prompt) if prompt else 0)
        self.counts.tokens_in += self.tasks[text].prompt_tokens
        self.waiting.append(text)

    def cancel(self, task: int) -> None:
        for text in [text for text, written in self.tasks.items() if written.task == task]:
            del self.tasks[text]
            if text in self.waiting:
                self.waiting.remove(text)
            else:
                self.texts.drop(text)

    def idle(self) -> bool:
        return not self.tasks

    def step(self) -> list[Event]:
        while self.waiting and (not self.texts.rows or self.texts.rows + len(self.waiting[0].running) <= WRITTEN):
            self.texts.add(self.waiting.popleft())
            self.counts.batches.append(self.texts.rows)
        try:
            return self._events(self.texts.step())
        except Exception as error:  # all that were written together are lost, but not those that wait
            self.texts = GenerationBatch(self.generator)
            lost = [text for text in self.tasks if text not in self.waiting]
            return [Event(self.tasks.pop(text).task, "failed", trace(error)) for text in lost]

    def _events(self, found: list[tuple[GeneratedText, list[TextDelta]]]) -> list[Event]:
        """What a step wrote, as plain data; a text that ended is forgotten only when all of the step is."""
        events, ended = [], []
        for text, pieces in found:
            written = self.tasks[text]
            written.completion_tokens += len(pieces)
            self.counts.tokens_out += len(pieces)
            events.append(Event(written.task, "piece", [self._plain(piece) for piece in pieces]))
            if not text.running:
                ended.append(text)
                tokens = {"prompt_tokens": written.prompt_tokens, "completion_tokens": written.completion_tokens}
                events.append(Event(written.task, "done", tokens))
        for text in ended:
            del self.tasks[text]
        return events

    def _plain(self, piece: Any) -> dict[str, Any]:
        token = self.generator.tokenizer.decode_text
        return {
            "number": piece.number,
            "text": piece.text,
            "token": token([piece.token]),
            "log_prob": piece.log_prob,
            "best": {token([one]): log_prob for one, log_prob in piece.best},
            "end": piece.end,
        }


class FillMaskWorkload:
    """An encoder that fills in blanks, one text after the other."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self.counts = Counts()
        self.waiting: dict[int, WorkerTask] = {}

    def add(self, task: WorkerTask) -> None:
        self.waiting[task.id] = task

    def cancel(self, task: int) -> None:
        self.waiting.pop(task, None)

    def idle(self) -> bool:
        return not self.waiting

    def step(self) -> list[Event]:
        if not self.waiting:
            return []
        task = self.waiting.pop(next(iter(self.waiting)))
        self.counts.batches.append(1)
        try:
            blanks = self.encoder.fill_mask(task.asked["text"], task.asked["top"])
        except SettingError as error:
            return [Event(task.id, "error", str(error))]
        except Exception as error:
            return [Event(task.id, "failed", trace(error))]
        return [Event(task.id, "done", [[asdict(each) for each in candidates] for candidates in blanks])]
