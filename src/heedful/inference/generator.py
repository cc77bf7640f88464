"""Generator: prompt -> text, with a GPT.

Tokens are sampled exactly as in `search.sample`, but step by step: text streams while it is generated, and the texts of
many clients share a batch (continuous batching). Keys and values are cached; when the context window of a text is full
it slides, and the newest part is computed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heedful.errors import HeedfulError, SettingError
from heedful.inference.context_window import ContextWindow
from heedful.inference.scheduler import QueuedRequest, RequestResult, Scheduler
from heedful.model.transformer import DecoderModel
from heedful.ops.precision import autocast
from heedful.search import SearchOptions
from heedful.search.constraints import ban, compose, penalize_repetition
from heedful.search.loops import guard_samples
from heedful.search.options import Constraint
from heedful.search.sample import draw, uniform_numbers
from heedful.storage import folder as model_folder
from heedful.storage.folder import ModelFolder, wrong_family_error
from heedful.text import Tokenizer

MAX_TOKENS = 200
MAX_ROWS = 64  # samples generated in one batch; a request for more runs alone
UNFINISHED = "\ufffd"  # decoded from an incomplete UTF-8 character


@dataclass
class TextStreamer:
    """Ids -> text, as soon as it is final: characters are complete, and none belongs to a stop string."""

    tokenizer: Tokenizer
    stop: tuple[str, ...] = ()
    ids: list[int] = field(default_factory=list)  # not decoded yet
    held: str = ""  # text that may begin a stop string
    stopped: bool = False

    def add(self, token: int) -> str:
        """The text that one more token makes final."""
        self.ids.append(token)
        text = self.tokenizer.decode_text(self.ids)
        if text.endswith(UNFINISHED):
            return ""
        self.ids = []
        return self._final(self.held + text)

    def end(self) -> str:
        """The rest, including text that was held back for a stop string."""
        text = self._final(self.held + self.tokenizer.decode_text(self.ids))
        rest, self.held = self.held, ""
        return text if self.stopped else text + rest

    def _final(self, text: str) -> str:
        """The text before a stop string, or before what may become one."""
        stops = [index for index in (text.find(stop) for stop in self.stop) if index >= 0]
        if stops:
            self.stopped, self.held = True, ""
            return text[: min(stops)]
        limits = [(stop, min(len(stop), len(text) + 1)) for stop in self.stop]
        keep = max((n for stop, limit in limits for n in range(1, limit) if text.endswith(stop[:n])), default=0)
        self.held = text[len(text) - keep :]
        return text[: len(text) - keep]


@dataclass(frozen=True)
class TextDelta:
    """One token of a sample, and the text that it makes final, which may be empty."""

    number: int  # of the sample
    text: str
    token: int
    log_prob: float  # of the token, after constraints
    best: tuple[tuple[int, float], ...] = ()  # the most probable tokens at this position, if requested
    end: str = ""  # "stop" after eos or before a stop string, "length" at max_tokens, empty if the sample continues


@dataclass(eq=False)
class GeneratedText:
    """A request for samples that continue a prompt, and their state."""

    prompt: list[int]
    running: list[int]  # numbers of unfinished samples
    writers: dict[int, TextStreamer]
    uniforms: Tensor  # (n, T) random numbers in [0, 1)
    written: Tensor  # (R, t) ids of the unfinished samples, for the repetition penalty
    max_tokens: int
    penalty: Constraint
    options: SearchOptions
    best: int


QueuedText = QueuedRequest[GeneratedText]
GenerationResult = RequestResult[GeneratedText, list[TextDelta]]


class GenerationBatch:
    """The samples of many requests as a backend of the scheduler: each step adds a token to every sample."""

    lookahead = 1

    def __init__(self, generator: Generator) -> None:
        self.generator = generator
        self.window = ContextWindow(generator.model)
        self.queued: list[QueuedText] = []  # their unfinished samples are the rows of the window, in order

    def admit(self, waiting: list[QueuedText]) -> list[QueuedText]:
        """Start the first request, unless its samples would make the batch too large."""
        text = waiting[0].request
        if self.queued and len(self.window.rows) + len(text.running) > MAX_ROWS:
            return []
        self.queued.append(waiting[0])
        for _ in text.running:
            self.window.add(text.prompt)
        return self.queued

    def cancel(self, queued: QueuedText) -> None:
        row_ranges = zip(self.queued, self._rows(), strict=True)
        self.window.select([row for other, (_, rows) in row_ranges if other is not queued for row in rows])
        self.queued.remove(queued)

    def step(self) -> list[GenerationResult]:
        """Sample the next token of every row; a request leaves with its last sample, and all leave after an error."""
        try:
            deltas = self._sample()
        except Exception as error:
            failed, self.queued, self.window = self.queued, [], ContextWindow(self.generator.model)
            return [GenerationResult(queued, error) for queued in failed]
        results = [
            GenerationResult(queued, of_text, finished=not queued.request.running)
            for queued, of_text in zip(self.queued, deltas, strict=True)
        ]
        self.queued = [result.queued for result in results if not result.finished]
        return results

    def close(self) -> None: ...

    @torch.inference_mode()
    def _sample(self) -> list[list[TextDelta]]:
        """The next token of every row -> the deltas of each request."""
        log_probs = self.generator.next(self.window)  # (R, V)
        for text, rows in self._rows():
            text_log_probs = log_probs[rows.start : rows.stop]
            text.penalty(text_log_probs, text.written, torch.zeros(len(text_log_probs), dtype=torch.long))
        ids = self._draw(log_probs)  # (R,)
        deltas = [self._deltas(text, rows, ids, log_probs) for text, rows in self._rows()]
        stay = [row for row, delta in enumerate(chain.from_iterable(deltas)) if not delta.end]
        self.window.append(ids.tolist())
        if len(stay) < len(ids):
            self.window.select(stay)
        for queued, of_text in zip(self.queued, deltas, strict=True):
            queued.request.running = [delta.number for delta in of_text if not delta.end]
        return deltas

    def _rows(self) -> Iterator[tuple[GeneratedText, range]]:
        start = 0
        for queued in self.queued:
            text = queued.request
            yield text, range(start, start + len(text.running))
            start += len(text.running)

    def _draw(self, log_probs: Tensor) -> Tensor:
        """(R, V) -> (R,): rows with the same sampling options are drawn together."""
        groups: dict[tuple[float, ...], tuple[SearchOptions, list[int]]] = {}
        numbers = torch.empty(len(log_probs), 1, dtype=torch.float64)
        for text, rows in self._rows():
            options = text.options
            key = (options.temperature, options.top_k, options.top_p, options.min_p)
            groups.setdefault(key, (options, []))[1].extend(rows)
            numbers[rows.start : rows.stop, 0] = text.uniforms[text.running, text.written.size(1)]
        ids = torch.empty(len(log_probs), dtype=torch.long)
        for options, drawn in groups.values():
            ids[drawn] = draw(log_probs[drawn], numbers[drawn], options).squeeze(1)
        return ids

    def _deltas(self, text: GeneratedText, rows: range, ids: Tensor, log_probs: Tensor) -> list[TextDelta]:
        last = text.written.size(1) + 1 == text.max_tokens
        deltas = [
            self.generator.delta(text, number, int(ids[row]), log_probs[row], last)
            for number, row in zip(text.running, rows, strict=True)
        ]
        stay = [place for place, delta in enumerate(deltas) if not delta.end]
        text.written = torch.cat((text.written, ids[rows.start : rows.stop].unsqueeze(1)), 1)[stay]
        return deltas


class Generator:
    """A trained language model that continues text."""

    def __init__(self, folder: ModelFolder, precision: str = "float32", device: str = "cpu") -> None:
        if folder.config.family != "decoder":
            raise wrong_family_error(folder, "does not continue text")
        assert isinstance(folder.model, DecoderModel)
        self.device, self.precision = torch.device(device), precision
        self.model = folder.model.to(self.device).eval()
        self.tokenizer = folder.tokenizer
        config = self.model.config
        self.forbid_special = ban({config.pad_id, config.bos_id, *self.tokenizer.extras.values()} - {config.eos_id})

    @classmethod
    def load(cls, path: Path | str, precision: str = "float32", device: str = "cpu") -> Generator:
        return cls(model_folder.load_folder(path), precision, device)

    def generate(self, prompt: str = "", **options: Any) -> str:
        """Continue the prompt. Options are those of `stream`."""
        return "".join(self.stream(prompt, **options))

    def samples(self, prompt: str = "", n: int = 1, **options: Any) -> list[str]:
        """`n` continuations of the prompt, computed together; number i equals `generate(prompt, number=i)`."""
        if n < 1:
            raise SettingError(f"n is {n}; ask for one sample or more.")
        texts = [""] * n
        for deltas in self.steps(prompt, range(n), **options):
            for delta in deltas:
                texts[delta.number] += delta.text
        return texts

    def stream(self, prompt: str = "", number: int = 0, **options: Any) -> Iterator[str]:
        """Continue the prompt; yields text as soon as it is final.

        `max_tokens` limits the text, `stop` strings end it and are not part of it; `temperature`, `top_k`, `top_p`,
        `min_p`, `repetition_penalty` and `seed` control sampling, and `number` selects one of the samples.
        """
        steps = self.steps(prompt, range(number, number + 1), **options)
        return (delta.text for deltas in steps for delta in deltas if delta.text)

    def steps(self, prompt: str, numbers: range, **options: Any) -> Iterator[list[TextDelta]]:
        """Compute the samples of these numbers together; each step yields a token of every unfinished one."""
        text = self.text(prompt, numbers, **options)
        return self._steps(text)

    def _steps(self, text: GeneratedText) -> Iterator[list[TextDelta]]:
        scheduler = Scheduler(GenerationBatch(self))
        scheduler.add([text])
        while not scheduler.idle():
            yield from (result.get() for result in scheduler.step())

    def text(
        self,
        prompt: str,
        numbers: range,
        *,
        max_tokens: int = MAX_TOKENS,
        stop: Sequence[str] = (),
        repetition_penalty: float = 1.0,
        best: int = 0,
        **sampling: Any,
    ) -> GeneratedText:
        """A validated request; with `best`, every delta also has that many most probable tokens."""
        options = SearchOptions.of(SearchOptions(), **sampling)
        stop = validate_stop(stop)
        if max_tokens < 1:
            raise SettingError(f"max_tokens is {max_tokens}; ask for one token or more.")
        ids = self.tokenizer.encode(prompt) or [self.model.config.bos_id]
        uniforms = uniform_numbers(
            torch.tensor([ids]), torch.tensor([len(ids)]), numbers.stop, max_tokens, options.seed
        )[0]  # (n, T)
        writers = {number: TextStreamer(self.tokenizer, stop) for number in numbers}
        written = torch.empty(len(numbers), 0, dtype=torch.long)
        penalties = [penalize_repetition(repetition_penalty)] if repetition_penalty != 1.0 else []
        penalties += [guard_samples([ids])] if options.loop_guard else []
        penalty = compose(*penalties)
        return GeneratedText(ids, list(numbers), writers, uniforms, written, max_tokens, penalty, options, best)

    def next(self, window: ContextWindow) -> Tensor:
        """-> (R, V) log-probabilities of the next tokens; special tokens are forbidden."""
        with autocast(self.precision, self.device):
            log_probs = window.next().cpu()
        if log_probs[:, 0].isnan().any():
            raise HeedfulError("the model's probabilities are not numbers (NaN); its weights are damaged or overflow.")
        return self.forbid_special(log_probs, torch.empty(0), torch.empty(0))

    def delta(self, text: GeneratedText, number: int, token: int, log_probs: Tensor, last: bool) -> TextDelta:
        """Append a token to a sample; (V,) log-probabilities."""
        writer, ended = text.writers[number], token == self.model.config.eos_id
        added = writer.end() if ended else writer.add(token)
        if last and not (ended or writer.stopped):
            added += writer.end()
        top = log_probs.topk(text.best) if text.best else None
        return TextDelta(
            number,
            added,
            token,
            float(log_probs[token]),
            () if top is None else tuple(zip(top.indices.tolist(), top.values.tolist(), strict=True)),
            "stop" if ended or writer.stopped else "length" if last else "",
        )


def validate_stop(stop: Sequence[str]) -> tuple[str, ...]:
    """Stop strings, one or several; none may be empty."""
    strings = (stop,) if isinstance(stop, str) else tuple(stop)
    if not all(strings):
        raise SettingError("a stop string is empty; give at least one character.")
    return strings
