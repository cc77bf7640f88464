"""The tasks of a GPT (generation, streamed token by token) and of a BERT (fill-mask)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from heedful.errors import SettingError
from heedful.inference.encoder import Encoder, MaskCandidate
from heedful.inference.generator import GenerationBatch, Generator, TextDelta
from heedful.inference.scheduler import OneByOne
from heedful.serve.messages import Counts
from heedful.serve.workload import Job, Workload


class GenerationJob(Job):
    """The samples of one prompt. Its result is the numbers of prompt and completion tokens."""

    def __init__(self, generator: Generator, prompt: str, n: int, **options: Any) -> None:
        vocab_size, top = generator.config.vocab_size, options.get("best", 0)
        if top > vocab_size:
            raise SettingError(f"logprobs is {top}, but the vocabulary has {vocab_size} tokens.")
        text = generator.text(prompt, range(n), **options)
        self.decode, self.requests = generator.tokenizer.decode_text, [text]
        self.tokens_in, self.tokens_out = len(text.prompt) if prompt else 0, 0

    def take(self, place: int, result: list[TextDelta], counts: Counts) -> list[dict[str, Any]]:
        self.tokens_out += len(result)
        counts.tokens_out += len(result)
        return [self._as_dict(delta) for delta in result]

    def result(self) -> dict[str, int]:
        return {"prompt_tokens": self.tokens_in, "completion_tokens": self.tokens_out}

    def _as_dict(self, delta: TextDelta) -> dict[str, Any]:
        return {
            "number": delta.number,
            "text": delta.text,
            "token": self.decode([delta.token]),
            "log_prob": delta.log_prob,
            "best": {self.decode([token]): log_prob for token, log_prob in delta.best},
            "end": delta.end,
        }


class GenerationWorkload(Workload):
    """A GPT: each step generates one token of every running sample."""

    def __init__(self, generator: Generator) -> None:
        super().__init__(GenerationBatch(generator))
        self.generator = generator

    def job(self, payload: dict[str, Any]) -> GenerationJob:
        return GenerationJob(self.generator, **payload)


class FillMaskJob(Job):
    """One text with masks. Its result is the candidates for each mask."""

    def __init__(self, text: str, top: int) -> None:
        self.requests, self.tokens_in = [(text, top)], 0
        self.candidates: list[list[MaskCandidate]] = []

    def take(self, place: int, result: list[list[MaskCandidate]], counts: Counts) -> None:
        self.candidates = result

    def result(self) -> list[list[dict[str, Any]]]:
        return [[asdict(candidate) for candidate in of_mask] for of_mask in self.candidates]


class FillMaskWorkload(Workload):
    """A BERT that predicts masked words, one text at a time."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__(OneByOne(lambda request: encoder.fill_mask(*request)))

    def job(self, payload: dict[str, Any]) -> FillMaskJob:
        return FillMaskJob(payload["text"], payload["top"])
