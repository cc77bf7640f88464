"""Generator: prompt -> text, with a GPT.

Tokens are sampled exactly as in `search.sample`, but step by step: text streams while it is generated, and the texts of
many clients share a batch (continuous batching). Keys and values are cached; when the context window of a text is full
it slides, and the newest part is computed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from heedful.config import Family
from heedful.errors import HeedfulError, SettingError
from heedful.inference.engine_window import EngineWindow
from heedful.inference.native_choice import LoadedModel
from heedful.inference.scheduler import QueuedRequest, RequestResult, Scheduler
from heedful.ops.threads import num_threads
from heedful.search import SearchOptions
from heedful.search.loops import MAX_COPIES, SAMPLED_RUN, loop_tokens, max_copies
from heedful.search.token_sampler import best_tokens, draw_token, penalize_repeated, sample_numbers
from heedful.storage.folder import ModelFolder
from heedful.text import Tokenizer

if TYPE_CHECKING:
    from heedful.model.transformer import DecoderModel  # noqa: F401  the base class names it in quotes

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
    uniforms: dict[int, NDArray[np.float64]]  # of each sample: (T,) random numbers in [0, 1)
    written: dict[int, list[int]]  # ids of each sample
    max_tokens: int
    repetition_penalty: float
    copies: int  # of an n-gram in a row that the guard against loops allows; 0 without it
    options: SearchOptions
    best: int

    def constrain(self, log_probs: NDArray[np.float32], written: list[int]) -> None:
        """(V,) log-probabilities of the token after `written`, changed in place: repetition penalty and loop guard."""
        penalize_repeated(log_probs, written, self.repetition_penalty)
        if self.copies and len(written) >= SAMPLED_RUN:
            log_probs[list(loop_tokens(written, self.copies, SAMPLED_RUN))] = -np.inf


class Window(Protocol):
    """The context window of a GPT: the tokens that it attends to in each row, and their KV cache."""

    @property
    def rows(self) -> Sequence[Sequence[int]]: ...

    def add(self, ids: Sequence[int]) -> None: ...

    def next(self) -> NDArray[np.float32]: ...

    def append(self, ids: Sequence[int]) -> None: ...

    def select(self, rows: Sequence[int]) -> None: ...


QueuedText = QueuedRequest[GeneratedText]
GenerationResult = RequestResult[GeneratedText, list[TextDelta]]


class GenerationBatch:
    """The samples of many requests as a backend of the scheduler: each step adds a token to every sample."""

    lookahead = 1

    def __init__(self, generator: Generator) -> None:
        self.generator = generator
        self.window = generator.open_window()
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
            failed, self.queued, self.window = self.queued, [], self.generator.open_window()
            return [GenerationResult(queued, error) for queued in failed]
        results = [
            GenerationResult(queued, of_text, finished=not queued.request.running)
            for queued, of_text in zip(self.queued, deltas, strict=True)
        ]
        self.queued = [result.queued for result in results if not result.finished]
        return results

    def close(self) -> None: ...

    def _sample(self) -> list[list[TextDelta]]:
        """The next token of every row -> the deltas of each request."""
        log_probs = self.generator.next(self.window)  # (R, V)
        ids: list[int] = []
        deltas: list[list[TextDelta]] = []
        for text, rows in self._rows():
            deltas.append([])
            for number, row in zip(text.running, rows, strict=True):
                written = text.written[number]
                text.constrain(log_probs[row], written)
                ids.append(draw_token(log_probs[row], text.uniforms[number][len(written)], text.options))
                written.append(ids[-1])
                last = len(written) == text.max_tokens
                deltas[-1].append(self.generator.delta(text, number, ids[-1], log_probs[row], last))
        stay = [row for row, delta in enumerate(chain.from_iterable(deltas)) if not delta.end]
        self.window.append(ids)
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


class Generator(LoadedModel["DecoderModel"]):
    """A trained language model that continues text."""

    family: ClassVar[Family] = "decoder"
    lacks: ClassVar[str] = "does not continue text"

    def __init__(self, folder: ModelFolder, precision: str = "float32", device: str = "cpu") -> None:
        super().__init__(folder, precision, device)
        special = {self.config.pad_id, self.config.bos_id, *self.tokenizer.extras.values()} - {self.config.eos_id}
        self.forbidden = sorted(special)

    def open_window(self) -> Window:
        """An empty context window, in the native engine or in PyTorch."""
        if (engine := self.engine) is not None:
            return EngineWindow(engine, num_threads())
        from heedful.inference.context_window import ContextWindow

        return ContextWindow(self.module, self.precision)

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
        if repetition_penalty <= 0:
            raise SettingError(
                f"the repetition penalty is {repetition_penalty}; it must be above 0, and 1 changes nothing."
            )
        ids = self.tokenizer.encode(prompt) or [self.config.bos_id]
        uniforms = {number: sample_numbers(ids, number, max_tokens, options.seed) for number in numbers}
        writers = {number: TextStreamer(self.tokenizer, stop) for number in numbers}
        written: dict[int, list[int]] = {number: [] for number in numbers}
        copies = max(MAX_COPIES, max_copies(ids)) if options.loop_guard else 0
        return GeneratedText(
            ids, list(numbers), writers, uniforms, written, max_tokens, repetition_penalty, copies, options, best
        )

    def next(self, window: Window) -> NDArray[np.float32]:
        """-> (R, V) log-probabilities of the next tokens; special tokens are forbidden."""
        log_probs = window.next()
        if np.isnan(log_probs[:, 0]).any():
            raise HeedfulError("the model's probabilities are not numbers (NaN); its weights are damaged or overflow.")
        log_probs[:, self.forbidden] = -np.inf
        return log_probs

    def delta(
        self, text: GeneratedText, number: int, token: int, log_probs: NDArray[np.float32], last: bool
    ) -> TextDelta:
        """Append a token to a sample; (V,) log-probabilities."""
        writer, ended = text.writers[number], token == self.config.eos_id
        added = writer.end() if ended else writer.add(token)
        if last and not (ended or writer.stopped):
            added += writer.end()
        best = best_tokens(log_probs, text.best) if text.best else ()
        return TextDelta(
            number,
            added,
            token,
            float(log_probs[token]),
            tuple((int(candidate), float(log_probs[candidate])) for candidate in best),
            "stop" if ended or writer.stopped else "length" if last else "",
        )


def validate_stop(stop: Sequence[str]) -> tuple[str, ...]:
    """Stop strings, one or several; none may be empty."""
    strings = (stop,) if isinstance(stop, str) else tuple(stop)
    if not all(strings):
        raise SettingError("a stop string is empty; give at least one character.")
    return strings
