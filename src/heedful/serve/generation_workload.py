"""Workloads of a GPT (generation) and a BERT (fill-mask), computed step by step in the worker process."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

from heedful.errors import SettingError
from heedful.inference.encoder import Encoder
from heedful.inference.generator import GeneratedText, GenerationBatch, Generator, TextDelta
from heedful.serve.logs import trace
from heedful.serve.messages import Counts, Event, WorkerTask

MAX_ROWS = 64  # samples generated in one batch


@dataclass
class GenerationRequest:
    """The task of a text, and its numbers of prompt and completion tokens."""

    task: int
    prompt_tokens: int
    completion_tokens: int = 0


class GenerationWorkload:
    """A GPT with continuous batching: each step generates one token of every running text."""

    def __init__(self, generator: Generator) -> None:
        self.generator = generator
        self.counts = Counts()
        self.texts = GenerationBatch(generator)
        self.waiting: deque[GeneratedText] = deque()
        self.tasks: dict[GeneratedText, GenerationRequest] = {}

    def add(self, task: WorkerTask) -> None:
        options = dict(task.payload)
        prompt, n, top = options.pop("prompt"), options.pop("n"), options.get("best", 0)
        vocab_size = self.generator.model.config.vocab_size
        if top > vocab_size:
            raise SettingError(f"logprobs is {top}, but the vocabulary has {vocab_size} tokens.")
        text = self.generator.text(prompt, range(n), **options)
        self.tasks[text] = GenerationRequest(task.id, len(text.prompt) if prompt else 0)
        self.counts.tokens_in += self.tasks[text].prompt_tokens
        self.waiting.append(text)

    def cancel(self, task: int) -> None:
        for text in [text for text, request in self.tasks.items() if request.task == task]:
            del self.tasks[text]
            if text in self.waiting:
                self.waiting.remove(text)
            else:
                self.texts.drop(text)

    def idle(self) -> bool:
        return not self.tasks

    def step(self) -> list[Event]:
        while self.waiting and (not self.texts.rows or self.texts.rows + len(self.waiting[0].running) <= MAX_ROWS):
            self.texts.add(self.waiting.popleft())
            self.counts.batches.append(self.texts.rows)
        try:
            return self._events(self.texts.step())
        except Exception as error:  # the running texts fail, the waiting ones do not
            self.texts = GenerationBatch(self.generator)
            failed = [text for text in self.tasks if text not in self.waiting]
            return [Event(self.tasks.pop(text).task, "failed", trace(error)) for text in failed]

    def _events(self, results: list[tuple[GeneratedText, list[TextDelta]]]) -> list[Event]:
        """The events of a step; finished texts are removed only after the whole step."""
        events, finished = [], []
        for text, deltas in results:
            request = self.tasks[text]
            request.completion_tokens += len(deltas)
            self.counts.tokens_out += len(deltas)
            events.append(Event(request.task, "delta", [self._as_dict(delta) for delta in deltas]))
            if not text.running:
                finished.append(text)
                tokens = {"prompt_tokens": request.prompt_tokens, "completion_tokens": request.completion_tokens}
                events.append(Event(request.task, "done", tokens))
        for text in finished:
            del self.tasks[text]
        return events

    def _as_dict(self, delta: TextDelta) -> dict[str, Any]:
        decode = self.generator.tokenizer.decode_text
        return {
            "number": delta.number,
            "text": delta.text,
            "token": decode([delta.token]),
            "log_prob": delta.log_prob,
            "best": {decode([token]): log_prob for token, log_prob in delta.best},
            "end": delta.end,
        }


class FillMaskWorkload:
    """A BERT that predicts masked words, one text at a time."""

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
            masks = self.encoder.fill_mask(task.payload["text"], task.payload["top"])
        except SettingError as error:
            return [Event(task.id, "error", str(error))]
        except Exception as error:
            return [Event(task.id, "failed", trace(error))]
        return [Event(task.id, "done", [[asdict(each) for each in candidates] for candidates in masks])]
