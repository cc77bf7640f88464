"""Prompt in, text out: a GPT at work.

Tokens are drawn exactly as `search.sample` draws them, but one after the other, so that text can be shown while it is
written, and texts of many users are written together. Keys and values are cached; when the window of a text is full it
slides, and the newest part is read again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heedful.errors import HeedfulError, SettingError
from heedful.inference.context_window import ContextWindow
from heedful.model.transformer import DecoderModel
from heedful.ops.precision import autocast
from heedful.search import SearchOptions
from heedful.search.constraints import ban, compose, penalize_repetition
from heedful.search.options import Constraint
from heedful.search.sample import draw, uniform_numbers
from heedful.storage import folder as model_folder
from heedful.storage.folder import ModelFolder, wrong_family_error
from heedful.text import Tokenizer

MAX_TOKENS = 200
UNFINISHED = "\ufffd"  # what the first bytes of a character decode to


@dataclass
class TextStreamer:
    """Ids -> text, as soon as it is certain: characters are whole, and none belongs to a stop string."""

    tokenizer: Tokenizer
    stop: tuple[str, ...] = ()
    ids: list[int] = field(default_factory=list)  # that are not text yet
    held: str = ""  # text that may be the beginning of a stop string
    stopped: bool = False

    def add(self, token: int) -> str:
        """What has become certain with one more token."""
        self.ids.append(token)
        text = self.tokenizer.decode_text(self.ids)
        if text.endswith(UNFINISHED):
            return ""
        self.ids = []
        return self._certain(self.held + text)

    def end(self) -> str:
        """The rest: what was held back turns out to be text."""
        text = self._certain(self.held + self.tokenizer.decode_text(self.ids))
        rest, self.held = self.held, ""
        return text if self.stopped else text + rest

    def _certain(self, text: str) -> str:
        """Text up to a stop string, or up to what may become one."""
        found = [at for at in (text.find(each) for each in self.stop) if at >= 0]
        if found:
            self.stopped, self.held = True, ""
            return text[: min(found)]
        within = [(each, min(len(each), len(text) + 1)) for each in self.stop]
        keep = max((n for each, most in within for n in range(1, most) if text.endswith(each[:n])), default=0)
        self.held = text[len(text) - keep :]
        return text[: len(text) - keep]


@dataclass(frozen=True)
class TextDelta:
    """One token of a sample, and what has become certain of its text with it, which may be nothing yet."""

    number: int  # of the sample
    text: str
    token: int
    log_prob: float  # of the token, as the model and the constraints have it
    best: tuple[tuple[int, float], ...] = ()  # the most probable tokens at this place, if they were asked for
    end: str = ""  # "stop" at the end of the text or before a stop string, "length" if no more tokens were allowed


@dataclass(eq=False)
class GeneratedText:
    """What somebody asks for: samples of what follows a prompt, how they are drawn, and how far they are."""

    prompt: list[int]
    running: list[int]  # numbers of the samples that go on
    writers: dict[int, TextStreamer]
    dice: Tensor  # (n, T)
    written: Tensor  # (R, t) ids of the samples that go on, in which repetition is counted
    max_tokens: int
    penalty: Constraint
    options: SearchOptions
    best: int


class GenerationBatch:
    """Texts that are written together, one token more of each at every step; any may join or leave in between."""

    def __init__(self, generator: Generator) -> None:
        self.generator = generator
        self.window = ContextWindow(generator.model)
        self.texts: list[GeneratedText] = []  # their samples are the rows of the window, in this order

    @property
    def rows(self) -> int:
        return len(self.window.rows)

    def add(self, text: GeneratedText) -> None:
        self.texts.append(text)
        for _ in text.running:
            self.window.add(text.prompt)

    def drop(self, text: GeneratedText) -> None:
        """It leaves, done or not."""
        self.window.select([row for each, rows in self._rows() if each is not text for row in rows])
        self.texts.remove(text)

    @torch.inference_mode()
    def step(self) -> list[tuple[GeneratedText, list[TextDelta]]]:
        """The next token of every sample of every text; a text leaves with its last sample."""
        if not self.texts:
            return []
        log_probs = self.generator.next(self.window)  # (R, V)
        for text, rows in self._rows():
            of_text = log_probs[rows.start : rows.stop]
            text.penalty(of_text, text.written, torch.zeros(len(of_text), dtype=torch.long))
        ids = self._draw(log_probs)  # (R,)
        found = [(text, self._pieces(text, rows, ids, log_probs)) for text, rows in self._rows()]
        stay = [row for row, piece in enumerate(each for _, pieces in found for each in pieces) if not piece.end]
        self.window.append(ids.tolist())
        if len(stay) < len(ids):
            self.window.select(stay)
        for text, pieces in found:
            text.running = [piece.number for piece in pieces if not piece.end]
        self.texts = [text for text in self.texts if text.running]
        return found

    def _rows(self) -> Iterator[tuple[GeneratedText, range]]:
        start = 0
        for text in self.texts:
            yield text, range(start, start + len(text.running))
            start += len(text.running)

    def _draw(self, log_probs: Tensor) -> Tensor:
        """(R, V) -> (R,): those that are drawn alike at once."""
        alike: dict[tuple[float, ...], tuple[SearchOptions, list[int]]] = {}
        numbers = torch.empty(len(log_probs), 1, dtype=torch.float64)
        for text, rows in self._rows():
            asked = text.options
            kind = (asked.temperature, asked.top_k, asked.top_p, asked.min_p)
            alike.setdefault(kind, (asked, []))[1].extend(rows)
            numbers[rows.start : rows.stop, 0] = text.dice[text.running, text.written.size(1)]
        ids = torch.empty(len(log_probs), dtype=torch.long)
        for options, drawn in alike.values():
            ids[drawn] = draw(log_probs[drawn], numbers[drawn], options).squeeze(1)
        return ids

    def _pieces(self, text: GeneratedText, rows: range, ids: Tensor, log_probs: Tensor) -> list[TextDelta]:
        last = text.written.size(1) + 1 == text.max_tokens
        pieces = [
            self.generator.piece(text, number, int(ids[row]), log_probs[row], last)
            for number, row in zip(text.running, rows, strict=True)
        ]
        stay = [place for place, piece in enumerate(pieces) if not piece.end]
        text.written = torch.cat((text.written, ids[rows.start : rows.stop].unsqueeze(1)), 1)[stay]
        return pieces


class Generator:
    """A trained language model, ready to write."""

    def __init__(self, folder: ModelFolder, precision: str = "float32", device: str = "cpu") -> None:
        if folder.config.family != "decoder":
            raise wrong_family_error(folder, "does not continue text")
        assert isinstance(folder.model, DecoderModel)
        self.device, self.precision = torch.device(device), precision
        self.model = folder.model.to(self.device).eval()
        self.tokenizer = folder.tokenizer
        config = self.model.config
        self.never = ban({config.pad_id, config.bos_id, *self.tokenizer.extras.values()} - {config.eos_id})

    @classmethod
    def load(cls, path: Path | str, precision: str = "float32", device: str = "cpu") -> Generator:
        return cls(model_folder.load_folder(path), precision, device)

    def generate(self, prompt: str = "", **options: Any) -> str:
        """What follows the prompt. Options are those of `stream`."""
        return "".join(self.stream(prompt, **options))

    def samples(self, prompt: str = "", n: int = 1, **options: Any) -> list[str]:
        """`n` texts that follow the prompt, number i the same as `generate(prompt, number=i)`; computed together."""
        if n < 1:
            raise SettingError(f"n is {n}; ask for one sample or more.")
        texts = [""] * n
        for pieces in self.steps(prompt, range(n), **options):
            for piece in pieces:
                texts[piece.number] += piece.text
        return texts

    def stream(self, prompt: str = "", number: int = 0, **options: Any) -> Iterator[str]:
        """The text that follows the prompt in pieces, as soon as they are certain.

        `max_tokens` limits it, `stop` strings end it and are not part of it, `temperature`, `top_k`, `top_p`, `min_p`,
        `repetition_penalty` and `seed` say how tokens are drawn, and `number` which of the samples this is.
        """
        steps = self.steps(prompt, range(number, number + 1), **options)
        return (piece.text for pieces in steps for piece in pieces if piece.text)

    def steps(self, prompt: str, numbers: range, **options: Any) -> Iterator[list[TextDelta]]:
        """The samples of these numbers, computed together: one token of each that still runs at every step."""
        text = self.text(prompt, numbers, **options)
        return self._steps(text)

    def _steps(self, text: GeneratedText) -> Iterator[list[TextDelta]]:
        texts = GenerationBatch(self)
        texts.add(text)
        while text.running:
            yield texts.step()[0][1]

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
        """What is asked for, ready to be written; with `best`, every piece has so many most probable tokens, too."""
        options = SearchOptions.of(SearchOptions(), **sampling)
        stop = checked_stop(stop)
        if max_tokens < 1:
            raise SettingError(f"max_tokens is {max_tokens}; ask for one token or more.")
        ids = self.tokenizer.encode(prompt) or [self.model.config.bos_id]
        dice = uniform_numbers(torch.tensor([ids]), torch.tensor([len(ids)]), numbers.stop, max_tokens, options.seed)[
            0
        ]  # (n, T)
        writers = {number: TextStreamer(self.tokenizer, stop) for number in numbers}
        written = torch.empty(len(numbers), 0, dtype=torch.long)
        penalty = penalize_repetition(repetition_penalty) if repetition_penalty != 1.0 else compose()
        return GeneratedText(ids, list(numbers), writers, dice, written, max_tokens, penalty, options, best)

    def next(self, window: ContextWindow) -> Tensor:
        """-> (R, V) log-probabilities of the next tokens; what is no text has none."""
        with autocast(self.precision, self.device):
            log_probs = window.next().cpu()
        if log_probs[:, 0].isnan().any():
            raise HeedfulError("the model's probabilities are not numbers (NaN); its weights are damaged or overflow.")
        return self.never(log_probs, torch.empty(0), torch.empty(0))

    def piece(self, text: GeneratedText, number: int, token: int, log_probs: Tensor, last: bool) -> TextDelta:
        """(V,) -> what one more token adds to a sample."""
        writer, ended = text.writers[number], token == self.model.config.eos_id
        added = writer.end() if ended else writer.add(token)
        if last and not (ended or writer.stopped):
            added += writer.end()
        most = log_probs.topk(text.best) if text.best else None
        return TextDelta(
            number,
            added,
            token,
            float(log_probs[token]),
            () if most is None else tuple(zip(most.indices.tolist(), most.values.tolist(), strict=True)),
            "stop" if ended or writer.stopped else "length" if last else "",
        )


def checked_stop(stop: Sequence[str]) -> tuple[str, ...]:
    """Stop strings, one or several; none may be empty."""
    given = (stop,) if isinstance(stop, str) else tuple(stop)
    if not all(given):
        raise SettingError("a stop string is empty; give at least one character.")
    return given
