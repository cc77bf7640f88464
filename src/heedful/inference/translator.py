"""Translator: text -> translations, for validation, the command line, the server and the page.

A translation depends on its line alone. A line longer than the model's limit is split at sentence or clause boundaries,
with a warning. The native engine computes most searches, scores and alignments, without torch; `TorchBackend`, which
imports torch, computes the others.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import repeat
from pathlib import Path
from typing import Any, ClassVar, overload

import numpy as np

from heedful.errors import SettingError
from heedful.inference.alignment import align_words, choose_heads, cross_attention
from heedful.inference.confidence import ConfidenceModel, load_confidence
from heedful.inference.forced_decoding import Floats, frame_pair, score_pairs
from heedful.inference.loaded_models import LoadedModels
from heedful.inference.native_choice import log_torch_notice
from heedful.inference.native_search import NativeSearchPool
from heedful.inference.restoring import TranslationRestorer, spread_alignment
from heedful.inference.results import SourcePart, Translation, join_parts
from heedful.inference.scheduler import SearchBackend, search_in_order
from heedful.inference.shortlist import load_shortlist
from heedful.inference.source_parts import SourcePartBuilder
from heedful.inference.term_matching import Glossary
from heedful.search import Hypothesis, SearchOptions, SearchRequest
from heedful.storage import folder as model_folder
from heedful.storage.folder import ModelFolder, wrong_family_error
from heedful.text import words_of_spans
from heedful.text.normalization import check_texts

ENCODE_BATCH = 200  # lines that are tokenized at once

log = logging.getLogger("heedful")


class Translator(LoadedModels):
    """A trained model, or several as an ensemble, ready to translate."""

    builder_type: ClassVar[type[SourcePartBuilder]] = SourcePartBuilder
    lacks: ClassVar[str] = "does not translate"  # said of a folder with another kind of model

    def __init__(
        self,
        folders: Sequence[ModelFolder],
        precision: str = "float32",
        device: str = "cpu",
        threads: int = 0,
        workers: int = 0,
        shortlist: bool = False,
    ) -> None:
        """`shortlist` restricts each sentence to the tokens that the shortlist of the first folder allows."""
        for folder in folders:
            if folder.config.family != "encoder-decoder" or folder.config.features:
                raise wrong_family_error(folder, self.lacks)
        if workers < 0:
            raise SettingError(f"workers is {workers}; it must be 0 (one for each thread) or more.")
        super().__init__(folders, precision, device, threads, load_shortlist(folders[0]) if shortlist else None)
        self.workers = workers or self.threads  # concurrent searches of the native engine
        self.max_length = min(config.max_length for config in self.configs)
        self.notice: Callable[[str], None] = log.warning  # called with warnings about a line

    @classmethod
    def load(
        cls, *paths: Path | str, precision: str = "auto", device: str = "cpu", shortlist: bool = False
    ) -> Translator:
        """Open one model folder, or several as an ensemble."""
        folders = [model_folder.load_folder(path) for path in paths]
        translator = cls(folders, precision, device, shortlist=shortlist)
        log_torch_notice(folders, device, precision)
        return translator

    @overload
    def translate(self, texts: str, **options: Any) -> str: ...
    @overload
    def translate(self, texts: Sequence[str], **options: Any) -> list[str]: ...
    def translate(self, texts: str | Sequence[str], **options: Any) -> str | list[str]:
        """The best translation of a text, or of each of several. Options are those of `translations`."""
        best = [n_best[0].text for n_best in self.translations([texts] if isinstance(texts, str) else texts, **options)]
        return best[0] if isinstance(texts, str) else best

    def translations(
        self, texts: Sequence[str], *, prefix: str | Sequence[str] = "", **options: Any
    ) -> list[list[Translation]]:
        """The `n_best` translations of each text, best first; an empty text has empty ones.

        Options are those of `stream`; there may be a prefix for each text.
        """
        check_texts(texts)
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
        glossary: Glossary | None = None,
        confidence: bool = False,
        few: bool = False,
        ready: Callable[[], bool] = lambda: True,
        **search: Any,
    ) -> Generator[list[Translation], None, None]:
        """As `translations`, for any number of lines, in order and in bounded memory.

        `search` overrides the settings of the model folder: beam, length_penalty, n_best, max_length, temperature and
        others. Terms of the `glossary` are translated as it says; placeholders are always kept. `confidence` adds that
        of every translation and word, if the folder has been calibrated. With `few` lines all threads compute one
        search; otherwise each worker has its own. `ready` tells whether the next line, or the end, can be read without
        blocking; until then the searches continue without it.
        """
        options = self.options(search)
        waiting: deque[list[SourcePart]] = deque()  # the parts of every line that was read and not yielded
        empty = Translation("", 0.0, 0.0, (), (), self.tokenizer, [] if alignments else None)
        if confidence:
            self.calibration  # noqa: B018  # an error before the first search
            empty = replace(empty, confidence=1.0, word_confidence=())

        def join(parts: list[SourcePart], hypotheses: list[list[Translation]]) -> list[Translation]:
            if not parts:
                return [empty] * options.n_best
            hypotheses = self.aligned(parts, hypotheses) if alignments else hypotheses
            return join_parts(self.restore(parts, hypotheses, options.n_best, alignments, confidence))

        hypotheses: list[list[Translation]] = []  # of the first line
        for translations in self._search(self._read(lines, prefix, glossary, ready, waiting), sampling, options, few):
            hypotheses.append(translations)
            if len(hypotheses) == max(1, len(waiting[0])):
                yield join(waiting.popleft(), hypotheses)
                hypotheses = []

    def _read(
        self,
        lines: Iterable[str],
        prefix: str | Iterable[str],
        glossary: Glossary | None,
        ready: Callable[[], bool],
        waiting: deque[list[SourcePart]],
    ) -> Iterator[SourcePart | None]:
        """The parts of all lines, also appended to `waiting` by line; None while no line is available.

        An empty line has none, and one part without tokens is searched.
        """
        pairs = _with_prefixes(lines, repeat(prefix) if isinstance(prefix, str) else prefix)
        done, ended = 0, False
        while not ended:
            read, ended = _read_available(pairs, ready)
            of_line: list[list[SourcePart]] = [[] for _ in read]
            texts, prefixes = [text for text, _ in read], [prefix for _, prefix in read]
            for part in self.parts(texts, prefixes, done + 1, glossary=glossary):
                of_line[part.line].append(part)
            waiting.extend(of_line)
            for line, parts in enumerate(of_line):
                yield from parts or [SourcePart(line, [], ())]
            done += len(read)
            if not ended and len(read) < ENCODE_BATCH:
                yield None

    def options(self, changes: dict[str, Any]) -> SearchOptions:
        """The folder's search settings with the changes of a request; a larger n_best widens the beam."""
        if "beam" not in changes and changes.get("n_best", 1) > self.search.beam:
            changes = changes | {"beam": changes["n_best"]}
        return SearchOptions.of(self.search, **changes, limit=self.max_length - 1)

    def score(self, pairs: Sequence[tuple[str, str]], first: int = 1) -> list[float]:
        """The log-probability of each target, given its source, under the model or the mean of an ensemble.

        Messages count pairs from `first`.
        """
        sources = self.source_tokenizer.encode_batch([source for source, _ in pairs])
        targets = self.tokenizer.encode_batch([target for _, target in pairs])
        ids = list(zip(sources, targets, strict=True))
        for number, pair in enumerate(ids, first):
            if (longest := max(map(len, pair)) + 1) > self.max_length:
                raise SettingError(
                    f"pair {number} has {longest} tokens, and the model takes {self.max_length} at most."
                )
        specials = self.source_tokenizer.specials, self.tokenizer.specials
        return score_pairs(self.forced_decoders, [frame_pair(*pair, *specials) for pair in ids])

    def parts(
        self,
        texts: Sequence[str],
        prefixes: Sequence[str],
        first_line: int = 1,
        openings: Sequence[str] = (),
        glossary: Glossary | None = None,
    ) -> list[SourcePart]:
        """The parts to search, in order of their texts; see `SourcePartBuilder.parts`."""

        def notice_split(line: int, tokens: int, pieces: int) -> None:
            self.notice(
                f"line {first_line + line} has {tokens} tokens, and this model takes {self._builder.longest} at once: "
                f"{self.describe_split(pieces)}."
            )

        return self._builder.parts(texts, prefixes, openings, glossary, notice_split)

    def describe_split(self, pieces: int) -> str:
        """What happens to a line that is too long, as a clause."""
        return f"it is translated in {pieces} parts"

    @cached_property
    def calibration(self) -> ConfidenceModel:
        """The calibration of confidence in the first folder."""
        return load_confidence(self.folders[0])

    @cached_property
    def _builder(self) -> SourcePartBuilder:
        tokenizers, vocab_size = (self.source_tokenizer, self.tokenizer), self.configs[0].vocab_size
        return self.builder_type(tokenizers, self.max_length, vocab_size, self.shortlist)

    def _search(
        self, parts: Iterator[SourcePart | None], sampling: bool, options: SearchOptions, few: bool
    ) -> Iterator[list[Translation]]:
        """The translations of each part, in order."""
        requests = (None if part is None else self.search_request(part, options) for part in parts)
        for hypotheses in search_in_order(self._backend(sampling, options, few), requests):
            yield self.decode(hypotheses)

    def search_request(self, part: SourcePart, options: SearchOptions) -> SearchRequest:
        eos, phrases = self.source_tokenizer.specials.eos, part.phrases
        prefix, shortlist = part.prefix, part.shortlist
        if options.first_token is not None and prefix[:1] != (options.first_token,):
            prefix = (options.first_token, *prefix)
            shortlist = None if shortlist is None else np.union1d(shortlist, np.int32(options.first_token))
        if phrases is not None:  # a required phrase may repeat itself, so that the guard against loops does not apply
            phrases = replace(phrases, filled=options.beam)
            options = options.model_copy(update={"beam": phrases.beam(options.beam), "loop_guard": False})
        return SearchRequest(part.ids and [*part.ids, eos], options, prefix, shortlist, phrases)

    def _backend(self, sampling: bool, options: SearchOptions, few: bool) -> SearchBackend:
        """What computes the searches of one call: the native engine where it can."""
        observer, engines = self.observer or options.observer, self.engines
        if len(engines) == 1 and not (sampling or options.constraints or observer):
            searches = 1 if few else self.workers
            return NativeSearchPool(engines[0], searches, max(1, self.threads // searches), batched_calls=True)
        return self.torch_lanes(lanes=1, sampling=sampling, observer=observer)

    def shared_backend(self) -> SearchBackend:
        """What computes the searches of many clients, each with options of its own."""
        if len(engines := self.engines) == 1:
            return NativeSearchPool(engines[0], self.threads)
        return self.torch_lanes()

    def restore(
        self,
        parts: Sequence[SourcePart],
        hypotheses: Sequence[list[Translation]],
        n_best: int,
        aligned: bool,
        confidence: bool = False,
    ) -> list[list[Translation]]:
        """The translations of a line's parts with placeholders put back, with warnings, and if asked, confidence.

        `aligned` says whether they have alignments.
        """
        calibration = self.calibration if confidence else None
        restorer = TranslationRestorer(self.source_tokenizer, self.tokenizer, self.attention, calibration)
        pairs = zip(parts, hypotheses, strict=True)
        return [
            restorer.restore(part, of_part) if part.ids else [restorer.copy(part, aligned)] * n_best
            for part, of_part in pairs
        ]

    def aligned(self, parts: Sequence[SourcePart], hypotheses: Sequence[list[Translation]]) -> list[list[Translation]]:
        """The same translations with alignments from the first model; words are counted over the whole line."""
        aligned = self.align(parts, hypotheses)
        return [[next(aligned) for _ in translations] for translations in hypotheses]

    def align(self, parts: Sequence[SourcePart], hypotheses: Sequence[list[Translation]]) -> Iterator[Translation]:
        """The same, one by one."""
        for part, of_part in zip(parts, hypotheses, strict=True):
            source_words = part.words(self.source_tokenizer)
            for translation in of_part:
                target_words = words_of_spans(*self.tokenizer.decode_spans(translation.ids))
                links = align_words(self.attention(part, translation), source_words, target_words)
                yield spread_alignment(part, replace(translation, alignment=links), self.source_tokenizer)

    def attention(self, part: SourcePart, translation: Translation) -> Floats:
        """-> (T, S): attention of each output token to each source token, in the heads that align words."""
        pair = frame_pair(part.ids, translation.ids, self.source_tokenizer.specials, self.tokenizer.specials)
        first = self.forced_decoders[0]
        return cross_attention(first, [pair], choose_heads(first, [pair]))[0]

    def decode(self, hypotheses: Sequence[Hypothesis]) -> list[Translation]:
        """Hypotheses as text."""
        return [
            Translation(self.tokenizer.decode(h.ids), h.score, h.log_prob, h.ids, h.token_log_probs, self.tokenizer)
            for h in hypotheses
        ]


def _with_prefixes(lines: Iterable[str], prefixes: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each line with its prefix."""
    remaining = iter(prefixes)
    for number, line in enumerate(lines, 1):
        prefix = next(remaining, None)
        if prefix is None:
            raise SettingError(f"line {number} has no prefix; give one for each line.")
        yield line, prefix


def _read_available(pairs: Iterator[tuple[str, str]], ready: Callable[[], bool]) -> tuple[list[tuple[str, str]], bool]:
    """Up to ENCODE_BATCH pairs that are available, and whether they are the last."""
    read: list[tuple[str, str]] = []
    while len(read) < ENCODE_BATCH and ready():
        pair = next(pairs, None)
        if pair is None:
            return read, True
        read.append(pair)
    return read, False
