"""Text in, text out: the one decoder of validation, command line, server and page.

Lines are encoded, sorted by length, searched in batches and put back in order. What a line becomes depends on the line
alone. A line that is longer than the model can take is cut at sentence or clause borders, and that is said.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any, overload

import torch
from torch import Tensor

from heedful import folder as model_folder
from heedful.align import Alignment, align_words, cross_attention, word_of_piece
from heedful.config import ModelConfig
from heedful.data.batch import Batch, collate
from heedful.data.pairs import Pairs
from heedful.data.plan import plan
from heedful.errors import FolderError, SettingError
from heedful.folder import Folder, Stored
from heedful.model import Cache, EncoderDecoder
from heedful.native import Asked, Engine, EngineNextToken, computes, library, search_all
from heedful.native.flow import PAUSE
from heedful.ops.precision import PRECISION_NAMES, PRECISIONS, choose, computing_in
from heedful.search import Ensemble, Hypothesis, NextToken, Observer, Options, beam_search, beam_steps, sample
from heedful.shortlist import load as load_shortlist
from heedful.text import split_long
from heedful.translation import Part, Translation, joined

ROWS = 256  # hypotheses that are searched at once
SCORE_TOKENS = 2048  # target tokens that are scored at once
READ = 200  # lines that are encoded at once
CHUNK = 2000  # parts that are sorted by length together, if batches must be

log = logging.getLogger("heedful")


class ModelNextToken:
    """An encoder-decoder as search sees it."""

    def __init__(self, model: EncoderDecoder) -> None:
        self.model = model
        self.bos_id, self.eos_id, self.pad_id = model.config.bos_id, model.config.eos_id, model.config.pad_id
        self.vocab_size = model.config.vocab_size

    def start(self, source: Tensor, source_lengths: Tensor) -> Cache:
        return self.model.start(source)

    def step(self, ids: Tensor, cache: Any) -> Tensor:
        hidden = self.model.step(ids.unsqueeze(1), cache).squeeze(1)  # (R, D)
        return self.model.project(hidden).float().log_softmax(-1)


class Translator:
    """A trained model, or several as an ensemble, ready to translate."""

    def __init__(
        self,
        folders: Sequence[Folder],
        precision: str = "float32",
        device: str = "cpu",
        threads: int = 0,
        workers: int = 0,
        shortlist: bool = False,
    ) -> None:
        """With `shortlist` a sentence is made of the tokens that the shortlist of the first folder gives it."""
        self.device = torch.device(device)
        self.threads = threads or torch.get_num_threads()
        self.workers = workers or self.threads  # searches at a time, of the compiled engine
        self.folders = folders
        self.configs = [_translating(each) for each in folders]
        _check_same_vocabularies(folders)
        first = folders[0]
        self.source_tokenizer, self.tokenizer, self.search = first.source_tokenizer, first.tokenizer, first.search
        self.max_length = min(config.max_length for config in self.configs)
        self.precision = self._chosen(precision)
        self.shortlist = load_shortlist(first) if shortlist else None
        self._models: list[EncoderDecoder] = []
        self._engines: list[Engine] = []
        self._taken: list[tuple[int, int]] | None = None  # the weights that are in the engines
        self.observer: Observer | None = None  # told what every search sees and finds
        self.notice: Callable[[str], None] = log.warning  # told what a user should know of a line

    @classmethod
    def load(
        cls, *paths: Path | str, precision: str = "auto", device: str = "cpu", shortlist: bool = False
    ) -> Translator:
        """Open one model folder, or several as an ensemble."""
        return cls([model_folder.load(path) for path in paths], precision, device, shortlist=shortlist)

    def _chosen(self, precision: str) -> str:
        """The precision to search in: the fastest one that this machine has for these models, if it is left open."""
        if precision not in PRECISIONS:
            raise SettingError(f"precision is {precision!r}; it must be {PRECISION_NAMES}.")
        compiled = self.device.type == "cpu" and all(map(computes, self.configs))
        if precision == "auto":
            return "int8" if compiled and library() is not None else choose(precision, self.device)
        if precision == "int8" and (not compiled or library() is None):
            why = "there is no compiler for it here" if compiled else "the engine for it does not know this model"
            raise SettingError(f"precision is int8, but {why}; leave it out, or set it to float32.")
        return precision

    @property
    def engine(self) -> str:
        """What translates, in a few words."""
        compiled = "the compiled engine" if self.engines else f"torch on {self.device.type}"
        shortlist = "" if self.shortlist is None else ", shortlist"
        return f"{compiled}, {self.precision}, {self.threads} thread{'s' * (self.threads > 1)}{shortlist}"

    @property
    def models(self) -> list[EncoderDecoder]:
        """The models as torch computes them; those on disk are read when they are first asked for."""
        if not self._models:
            unread = self._stored()
            read = [folder.model for folder in self.folders]
            self._models = [each.to(self.device).eval() for each in read if isinstance(each, EncoderDecoder)]
            self._taken = self._state() if unread and self._engines else None
        return self._models

    @property
    def engines(self) -> list[Engine]:
        """The models in the compiled engine; none if torch is to compute.

        Torch computes what the engine does not know, on other devices, in bfloat16, and while somebody listens to the
        modules. Weights that have changed are taken over anew; what is only on disk needs no room elsewhere.
        """
        if self.precision == "bfloat16" or self.device.type != "cpu" or not all(map(computes, self.configs)):
            return []
        if library() is None:
            return []
        if stored := self._stored():
            self._engines = self._engines or self._made(stored)
            return self._engines
        if any(each._forward_hooks or each._forward_pre_hooks for model in self.models for each in model.modules()):
            return []
        if self._taken != (state := self._state()):
            self._taken, self._engines = state, self._made(self.models)
        return self._engines

    def _made(self, weights: Sequence[EncoderDecoder] | Sequence[Stored]) -> list[Engine]:
        return [Engine(each, self.precision == "int8", self.shortlist is not None) for each in weights]

    def _stored(self) -> list[Stored]:
        """The models, if all of them are on disk and not yet read."""
        stored = [each.weights for each in self.folders if isinstance(each.weights, Stored)]
        return stored if len(stored) == len(self.folders) else []

    def _state(self) -> list[tuple[int, int]]:
        """What changes if weights do."""
        return [(each.data_ptr(), each._version) for model in self._models for each in model.parameters()]

    @property
    def next_token(self) -> NextToken:
        """The model, or the ensemble, as search sees it."""
        members: list[NextToken] = [EngineNextToken(each) for each in self.engines]
        members = members or [ModelNextToken(model) for model in self.models]
        return members[0] if len(members) == 1 else Ensemble(members)

    @overload
    def translate(self, texts: str, **options: Any) -> str: ...
    @overload
    def translate(self, texts: Sequence[str], **options: Any) -> list[str]: ...
    def translate(self, texts: str | Sequence[str], **options: Any) -> str | list[str]:
        """The best translation of a text, or of each of several. Options are those of `translations`."""
        best = [found[0].text for found in self.translations([texts] if isinstance(texts, str) else texts, **options)]
        return best[0] if isinstance(texts, str) else best

    def translations(
        self, texts: Sequence[str], *, prefix: str | Sequence[str] = "", **options: Any
    ) -> list[list[Translation]]:
        """For each text its `n_best` translations, best first; an empty text has an empty one.

        Options are those of `stream`; there may be a prefix for each text.
        """
        if not isinstance(prefix, str) and len(prefix) != len(texts):
            raise SettingError(f"{len(prefix)} prefixes were given for {len(texts)} texts; give one for each.")
        return list(self.stream(texts, prefix=prefix, few=len(texts) <= self.workers, **options))

    def stream(
        self,
        lines: Iterable[str],
        *,
        sampling: bool = False,
        alignments: bool = False,
        prefix: str | Iterable[str] = "",
        few: bool = False,
        ready: Callable[[], bool] = lambda: True,
        **search: Any,
    ) -> Generator[list[Translation], None, None]:
        """As `translations`, for as many lines as there are, in order and in bounded memory.

        `search` changes the settings of the model folder: beam, alpha, n_best, max_length, temperature and so on. Of a
        `few` lines each gets all threads, where many share them. `ready` says whether the next line, or the end, can be
        had without waiting: while it cannot, nothing waits for it.
        """
        options = self.options(search)
        waiting: deque[list[Part]] = deque()  # the parts of every line that is read and not out
        nothing = Translation("", 0.0, 0.0, (), (), self.tokenizer, [] if alignments else None)

        def line(parts: list[Part], found: list[list[Translation]]) -> list[Translation]:
            if not parts[0].ids:
                return [nothing] * options.n_best
            return joined(self.aligned(parts, found) if alignments else found)

        found: list[list[Translation]] = []  # of the first line
        for translations in self._search(self._read(lines, prefix, ready, waiting), sampling, options, few):
            found.append(translations)
            if len(found) == len(waiting[0]):
                yield line(waiting.popleft(), found)
                found = []

    def _read(
        self, lines: Iterable[str], prefix: str | Iterable[str], ready: Callable[[], bool], waiting: deque[list[Part]]
    ) -> Iterator[Part | None]:
        """The parts of all lines, some lines at a time, None while there are none; also put into `waiting`, by line.

        An empty line is one part without tokens.
        """
        each = zip(lines, repeat(prefix) if isinstance(prefix, str) else prefix, strict=False)
        done, ended = 0, False
        while not ended:
            read, ended = _there(each, ready)
            of_line: list[list[Part]] = [[] for _ in read]
            for part in self.parts([text for text, _ in read], [begin for _, begin in read], done + 1):
                of_line[part.line].append(part)
            of_line = [parts or [Part(line, [], ())] for line, parts in enumerate(of_line)]
            waiting.extend(of_line)
            yield from chain.from_iterable(of_line)
            done += len(read)
            if not ended and len(read) < READ:
                yield None

    def options(self, changes: dict[str, Any]) -> Options:
        """The settings of a search: the model folder's, changed by a request; more hypotheses widen the beam."""
        if "beam" not in changes and changes.get("n_best", 1) > self.search.beam:
            changes = changes | {"beam": changes["n_best"]}
        return Options.of(self.search, **changes, limit=self.max_length - 1)

    @torch.inference_mode()
    def score(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """The log-probability of each target, given its source, under the model or the mean of an ensemble."""
        ids = list(
            zip(
                self.source_tokenizer.encode_batch([source for source, _ in pairs]),
                self.tokenizer.encode_batch([target for _, target in pairs]),
                strict=True,
            )
        )
        for number, (source, target) in enumerate(ids, 1):
            if max(len(source), len(target)) >= self.max_length:
                longest = max(len(source), len(target)) + 1
                raise SettingError(
                    f"pair {number} has {longest} tokens, and the model takes {self.max_length} at most."
                )
        encoded = Pairs.of(ids)
        scores = [0.0] * len(pairs)
        for indices in plan(encoded.source_lengths, encoded.target_lengths, SCORE_TOKENS, 0, 0):
            batch = self._collate(encoded, indices)
            total = self._log_probs(batch).masked_fill(batch.labels == self.next_token.pad_id, 0.0).double().sum(1)
            for index, value in zip(indices.tolist(), total.tolist(), strict=True):
                scores[index] = value
        return scores

    def _log_probs(self, batch: Batch) -> Tensor:
        """-> (B, T): the log-probability of each label; an ensemble averages the probabilities of every step."""
        each = []
        for model in self.models:
            with computing_in(self.precision, self.device):
                logits = model.project(model(batch.source, batch.decoder_input)).float()  # (B, T, V)
            each.append(logits.gather(2, batch.labels.unsqueeze(2)).squeeze(2) - logits.logsumexp(2))
        return torch.stack(each).logsumexp(0) - torch.tensor(float(len(each))).log()

    def parts(self, texts: Sequence[str], prefixes: Sequence[str], first_line: int = 1) -> list[Part]:
        """What is searched: every text as it is, or in parts if it is too long; nothing of an empty one."""
        longest = max(1, self.max_length // 2 - 1)  # so that a translation may be twice as long as its source

        def fits(text: str) -> bool:
            return len(self.source_tokenizer.encode(text)) <= longest

        parts = []
        for line, (text, ids) in enumerate(zip(texts, self.source_tokenizer.encode_batch(texts), strict=True)):
            if not ids:
                continue
            prefix = tuple(self.tokenizer.encode(prefixes[line])) if prefixes[line] else ()
            if len(ids) <= longest:
                parts.append(self._part(line, ids, prefix))
                continue
            pieces = self.source_tokenizer.encode_batch(split_long(self.source_tokenizer.normalise(text), fits))
            self.notice(
                f"line {first_line + line} has {len(ids)} tokens, and this model takes {longest} at once: "
                f"it is translated in {len(pieces)} parts."
            )
            parts += [self._part(line, piece, () if number else prefix) for number, piece in enumerate(pieces) if piece]
        return parts

    def _part(self, line: int, ids: list[int], prefix: tuple[int, ...]) -> Part:
        return Part(line, ids, prefix, None if self.shortlist is None else self.shortlist.tokens(ids, prefix))

    def _search(
        self, parts: Iterator[Part | None], sampling: bool, options: Options, few: bool
    ) -> Iterator[list[Translation]]:
        """What each part becomes, in order."""
        engines = self.engines
        if len(engines) == 1 and not (sampling or options.constraints or self.observer):
            eos = self.source_tokenizer.specials.eos
            asked = (
                None if part is None else Asked(part.ids and [*part.ids, eos], options, part.prefix, part.shortlist)
                for part in parts
            )
            workers = 1 if few else self.workers
            for hypotheses in search_all(engines[0], asked, workers, max(1, self.threads // workers)):
                yield self.found(hypotheses)
            return
        for chunk in _chunks(parts):
            yield from self._search_chunk(chunk, sampling, options)

    @torch.inference_mode()
    def _search_chunk(self, parts: list[Part], sampling: bool, options: Options) -> list[list[Translation]]:
        """The same in batches of about equal length, by the model as any search sees it."""
        find = sample if sampling else beam_search
        width = options.n_best if sampling else options.beam
        order = [index for index, part in enumerate(parts) if part.ids]
        order.sort(key=lambda index: -len(parts[index].ids))
        found: list[list[Translation]] = [[] for _ in parts]
        for chosen in _batches(order, max(1, ROWS // width)):
            sources, source, lengths, asked = self._batch([parts[index] for index in chosen], options)
            with computing_in(self.precision, self.device):
                hypotheses = find(self.next_token, source, lengths, asked)
            if self.observer is not None:
                self.observer.found(chosen, sources, hypotheses)
            for index, each in zip(chosen, hypotheses, strict=True):
                found[index] = self.found(each)
        return found

    @torch.inference_mode()
    def steps(
        self, parts: Sequence[Part], options: Options, gone: Collection[int] = ()
    ) -> Iterator[list[tuple[int, list[Translation]]]]:
        """Search these parts together, step by step: which of them each step ended, and what became of them.

        Whoever takes the steps may add indices of parts to `gone` in between: these cost nothing any more.
        """
        _, source, lengths, asked = self._batch(parts, options)
        steps = beam_steps(self.next_token, source, lengths, asked, gone)
        while True:
            with computing_in(self.precision, self.device):
                ended = next(steps, None)
            if ended is None:
                return
            yield [(index, self.found(hypotheses)) for index, hypotheses in ended]

    def _batch(self, parts: Sequence[Part], options: Options) -> tuple[list[list[int]], Tensor, Tensor, Options]:
        """-> the sources, (B, S) the same padded, (B,) their lengths, and the options with what each part asks for."""
        specials = self.source_tokenizer.specials
        sources = [[*part.ids, specials.eos] for part in parts]
        lengths = torch.tensor([len(ids) for ids in sources])
        source = torch.full((len(sources), int(lengths.max())), specials.pad)
        for row, ids in zip(source, sources, strict=True):
            row[: len(ids)] = torch.tensor(ids)
        prefix = tuple(part.prefix for part in parts)
        shortlists = None if self.shortlist is None else tuple(part.shortlist for part in parts)
        changes = {"prefix": prefix if any(prefix) else None, "shortlists": shortlists, "observer": self.observer}
        return sources, source.to(self.device), lengths.to(self.device), options.model_copy(update=changes)

    def found(self, hypotheses: Sequence[Hypothesis]) -> list[Translation]:
        """What a search found, as text."""
        return [self._translation(each) for each in hypotheses]

    def _translation(self, found: Hypothesis) -> Translation:
        text = self.tokenizer.decode(found.ids)
        return Translation(text, found.score, found.log_prob, found.ids, found.token_log_probs, self.tokenizer)

    @torch.inference_mode()
    def aligned(self, parts: Sequence[Part], found: Sequence[list[Translation]]) -> list[list[Translation]]:
        """The same translations with their alignments, from the first model; words are counted over the whole line."""
        aligned, line, words = [], -1, 0
        for part, translations in zip(parts, found, strict=True):
            words = words if part.line == line else 0
            line = part.line
            source_words = [words + word for word in word_of_piece(self.source_tokenizer.pieces(part.ids))]
            aligned.append([replace(each, alignment=self._align(part, source_words, each)) for each in translations])
            words = source_words[-1] + 1
        return aligned

    def _align(self, part: Part, source_words: list[int], translation: Translation) -> Alignment:
        return align_words(self.attention(part, translation), source_words, word_of_piece(translation.tokens))

    def attention(self, part: Part, translation: Translation) -> Tensor:
        """-> (T, S): how much each output token attends to each source token, in the heads that follow the words."""
        pairs = Pairs.of([(part.ids, translation.ids)])
        with computing_in(self.precision, self.device):
            return cross_attention(self.models[0], self._collate(pairs, [0]))[0].float().cpu()

    def _collate(self, pairs: Pairs, indices: Any) -> Batch:
        source, target = self.source_tokenizer.specials, self.tokenizer.specials
        return collate(pairs, indices, source, target).to(self.device)


def _there(pairs: Iterator[tuple[str, str]], ready: Callable[[], bool]) -> tuple[list[tuple[str, str]], bool]:
    """As many as are there, and are encoded at once, and whether they are the last."""
    read: list[tuple[str, str]] = []
    while len(read) < READ and ready():
        pair = next(pairs, None)
        if pair is None:
            return read, True
        read.append(pair)
    return read, False


def _chunks(parts: Iterable[Part | None]) -> Iterator[list[Part]]:
    """Parts to be sorted by length together: those that are there, and few at first, so that none waits for many."""
    chunk: list[Part] = []
    size = ROWS
    for part in parts:
        if part is not None:
            chunk.append(part)
        elif not chunk:
            time.sleep(PAUSE)
        if chunk and (part is None or len(chunk) == size):
            yield chunk
            chunk, size = [], min(2 * size, CHUNK)
    if chunk:
        yield chunk


def _batches(order: list[int], size: int) -> Iterator[list[int]]:
    for start in range(0, len(order), size):
        yield order[start : start + size]


def _translating(folder: Folder) -> ModelConfig:
    if folder.config.family != "encoder-decoder":
        raise FolderError(
            f"{folder.path} holds a model of the {folder.config.family} family, which does not translate."
        )
    return folder.config


def _check_same_vocabularies(folders: Sequence[Folder]) -> None:
    first = folders[0]
    for other in folders[1:]:
        same = other.tokenizer.to_json() == first.tokenizer.to_json()
        if not same or other.source_tokenizer.to_json() != first.source_tokenizer.to_json():
            raise SettingError(
                f"{other.path} has another vocabulary than {first.path}; the models of an ensemble must share theirs."
            )
