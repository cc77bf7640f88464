"""Prompt in, text out: a GPT at work.

Tokens are drawn exactly as `search.sample` draws them, but one after the other, so that text can be shown while it is
written. Keys and values are cached; when the window is full it slides, and the newest part is read again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heedful import folder as model_folder
from heedful.errors import FolderError, SettingError
from heedful.folder import Folder
from heedful.model import Cache, DecoderModel
from heedful.ops.precision import computing_in
from heedful.search import Options
from heedful.search.constraints import ban, penalise_repetition
from heedful.search.options import Constraint
from heedful.search.sample import draw, throw
from heedful.text import Tokenizer

MAX_TOKENS = 200
UNFINISHED = "\ufffd"  # what the first bytes of a character decode to


class Window:
    """The tokens that a model sees: all so far, or, once they are more than it takes, the newest of them.

    Sliding drops a quarter of the window at once, so that the newest three quarters are read again only now and then.
    """

    def __init__(self, model: DecoderModel, ids: Tensor) -> None:
        """(R, t)."""
        self.model = model
        self.longest = model.config.max_length
        self.step = max(1, self.longest // 4)
        self.ids = self._newest(ids)  # (R, t) what is seen
        self.cache: Cache | None = None

    def _newest(self, ids: Tensor) -> Tensor:
        over = ids.size(1) - self.longest
        return ids if over <= 0 else ids[:, -(-over // self.step) * self.step :]

    def next(self) -> Tensor:
        """-> (R, V) log-probabilities of the token that comes next."""
        new = self.ids
        if self.cache is None:
            self.cache = self.model.start()
        else:
            new = self.ids[:, self.cache.length :]
        hidden = self.model.step(new, self.cache)[:, -1]  # (R, D)
        return self.model.project(hidden).float().log_softmax(-1)

    def append(self, ids: Tensor) -> None:
        """(R,)."""
        longer = torch.cat((self.ids, ids.unsqueeze(1)), 1)
        self.ids = self._newest(longer)
        if self.ids.size(1) < longer.size(1):
            self.cache = None

    def select(self, rows: Tensor) -> None:
        """(R',) the rows that go on."""
        self.ids = self.ids[rows]
        if self.cache is not None:
            self.cache.select(rows)


class NextGpt:
    """A GPT as search sees it: the source is the prompt, all of one length, and its last token is where it starts."""

    def __init__(self, model: DecoderModel) -> None:
        self.model = model
        config = model.config
        self.bos_id, self.eos_id, self.pad_id, self.vocab_size = (
            config.bos_id, config.eos_id, config.pad_id, config.vocab_size,
        )  # fmt: skip

    def start(self, source: Tensor, source_lengths: Tensor) -> _SearchCache:
        if len(set(source_lengths.tolist())) > 1:
            raise SettingError("prompts that are searched together must have the same number of tokens.")
        return _SearchCache(Window(self.model, source))

    def step(self, ids: Tensor, cache: Any) -> Tensor:
        if cache.begun:
            cache.window.append(ids)
        cache.begun = True
        logits: Tensor = cache.window.next()
        return logits


@dataclass
class _SearchCache:
    window: Window
    begun: bool = False

    def select(self, rows: Tensor, sources: Tensor | None = None) -> None:
        self.window.select(rows)


@dataclass
class Writer:
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
        keep = max((n for each in self.stop for n in range(1, len(each)) if text.endswith(each[:n])), default=0)
        self.held = text[len(text) - keep :]
        return text[: len(text) - keep]


@dataclass(frozen=True)
class Piece:
    """One token of a sample, and what has become certain of its text with it, which may be nothing yet."""

    number: int  # of the sample
    text: str
    token: int
    log_prob: float  # of the token, as the model and the constraints have it
    best: tuple[tuple[int, float], ...] = ()  # the most probable tokens at this place, if they were asked for
    end: str = ""  # "stop" at the end of the text or before a stop string, "length" if no more tokens were allowed


class Generator:
    """A trained language model, ready to write."""

    def __init__(self, folder: Folder, precision: str = "float32", device: str = "cpu") -> None:
        if not isinstance(folder.model, DecoderModel):
            raise FolderError(
                f"{folder.path} holds a model of the {folder.model.config.family} family, which does not continue text."
            )
        self.device, self.precision = torch.device(device), precision
        self.model = folder.model.to(self.device).eval()
        self.tokenizer = folder.tokenizer

    @classmethod
    def load(cls, path: Path | str, precision: str = "float32", device: str = "cpu") -> Generator:
        return cls(model_folder.load(path), precision, device)

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

    def steps(
        self,
        prompt: str,
        numbers: range,
        *,
        max_tokens: int = MAX_TOKENS,
        stop: Sequence[str] = (),
        repetition_penalty: float = 1.0,
        best: int = 0,
        **sampling: Any,
    ) -> Iterator[list[Piece]]:
        """The samples of these numbers, computed together: one token of each that still runs at every step.

        With `best`, every piece also has so many of the most probable tokens at its place.
        """
        options = Options.of(Options(), **sampling)
        stop = checked_stop(stop)
        if max_tokens < 1:
            raise SettingError(f"max_tokens is {max_tokens}; ask for one token or more.")
        constrain = self._constraint(repetition_penalty)
        begin = self.tokenizer.encode(prompt) or [self.model.config.bos_id]
        return self._steps(begin, numbers, max_tokens, stop, constrain, options, best)

    def _constraint(self, penalty: float) -> list[Constraint]:
        config = self.model.config
        never = {config.pad_id, config.bos_id, *self.tokenizer.extras.values()} - {config.eos_id}
        repeat = [penalise_repetition(penalty)] if penalty != 1.0 else []
        return [*repeat, ban(never)]

    def _steps(
        self,
        prompt: list[int],
        numbers: range,
        max_tokens: int,
        stop: tuple[str, ...],
        constraints: list[Constraint],
        options: Options,
        best: int,
    ) -> Iterator[list[Piece]]:
        source = torch.tensor([prompt])
        dice = throw(source, torch.tensor([len(prompt)]), numbers.stop, max_tokens, options.seed)[0]  # (n, T)
        running = list(numbers)
        writers = {number: Writer(self.tokenizer, stop) for number in numbers}
        window = Window(self.model, source.expand(len(running), -1).to(self.device))
        written = torch.empty(len(running), 0, dtype=torch.long)  # (R, t) what repetition is counted in
        for step in range(max_tokens):
            log_probs = self._log_probs(window, written, constraints)  # (R, V)
            ids = draw(log_probs, dice[running, step].unsqueeze(1), options).squeeze(1)  # (R,)
            last = step == max_tokens - 1
            pieces = [
                self._piece(writers[number], number, token, row, last, best)
                for number, token, row in zip(running, ids.tolist(), log_probs, strict=True)
            ]
            yield pieces
            stay = [row for row, piece in enumerate(pieces) if not piece.end]
            if not stay:
                return
            written = torch.cat((written, ids.unsqueeze(1)), 1)[stay]
            window.append(ids.to(self.device))
            if len(stay) < len(running):
                window.select(torch.tensor(stay, device=self.device))
                running = [running[row] for row in stay]

    def _piece(self, writer: Writer, number: int, token: int, log_probs: Tensor, last: bool, best: int) -> Piece:
        """(V,) -> what one more token adds to a sample."""
        ended = token == self.model.config.eos_id
        text = writer.end() if ended else writer.add(token)
        if last and not (ended or writer.stopped):
            text += writer.end()
        most = log_probs.topk(best) if best else None
        return Piece(
            number,
            text,
            token,
            float(log_probs[token]),
            () if most is None else tuple(zip(most.indices.tolist(), most.values.tolist(), strict=True)),
            "stop" if ended or writer.stopped else "length" if last else "",
        )

    @torch.inference_mode()
    def _log_probs(self, window: Window, written: Tensor, constraints: list[Constraint]) -> Tensor:
        """(R, t) ids so far -> (R, V) log-probabilities of the next ones, as the constraints leave them."""
        with computing_in(self.precision, self.device):
            log_probs = window.next().cpu()
        for constraint in constraints:
            log_probs = constraint(log_probs, written, torch.zeros(len(log_probs), dtype=torch.long))
        return log_probs


def checked_stop(stop: Sequence[str]) -> tuple[str, ...]:
    """Stop strings, one or several; none may be empty."""
    given = (stop,) if isinstance(stop, str) else tuple(stop)
    if not all(given):
        raise SettingError("a stop string is empty; give at least one character.")
    return given
