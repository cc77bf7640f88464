"""What a translator computes with torch: searches that the compiled engine does not know, scores, and alignments."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from heedful.data.batch import Batch, collate
from heedful.data.bucketing import plan_batches
from heedful.data.pairs import Pairs
from heedful.inference.alignment import align_words, cross_attention
from heedful.inference.results import SourcePart, Translation
from heedful.model.cache import Cache
from heedful.model.transformer import EncoderDecoder
from heedful.native import Engine
from heedful.native.scheduler import PAUSE
from heedful.native.torch_bridge import EngineNextToken
from heedful.ops.precision import autocast
from heedful.search import Hypothesis, NextToken, Observer, SearchOptions
from heedful.search.beam import beam_search, beam_steps
from heedful.search.ensemble import Ensemble
from heedful.search.sample import sample
from heedful.text import Tokenizer, words_of_spans

ROWS = 256  # hypotheses that are searched at once
CHUNK = 2000  # parts that are sorted by length together
SCORE_TOKENS = 2048  # target tokens that are scored at once


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


class TorchBackend:
    """One model, or several as an ensemble, with torch; they are asked for when they are needed."""

    def __init__(
        self,
        models: Callable[[], Sequence[EncoderDecoder]],
        source_tokenizer: Tokenizer,
        tokenizer: Tokenizer,
        precision: str,
        device: str,
    ) -> None:
        self.models, self.source_tokenizer, self.tokenizer = models, source_tokenizer, tokenizer
        self.precision, self.device = precision, torch.device(device)

    def next_token(self, engines: Sequence[Engine]) -> NextToken:
        """The model, or the ensemble, as search sees it; by the compiled engine where there are some."""
        members: list[NextToken] = [EngineNextToken(each) for each in engines]
        members = members or [ModelNextToken(model) for model in self.models()]
        return members[0] if len(members) == 1 else Ensemble(members)

    def search(
        self,
        model: NextToken,
        parts: Iterable[SourcePart | None],
        sampling: bool,
        options: SearchOptions,
        observer: Observer | None = None,
    ) -> Iterator[list[Hypothesis]]:
        """What each part becomes, in order; None among them says that there is no more for now."""
        done, options = 0, options.model_copy(update={"observer": observer or options.observer})
        for chunk in _chunks(parts):
            yield from self._chunk(model, chunk, sampling, options, done)
            done += len(chunk)

    @torch.inference_mode()
    def _chunk(
        self, model: NextToken, parts: list[SourcePart], sampling: bool, options: SearchOptions, first: int
    ) -> list[list[Hypothesis]]:
        """The same in batches of about equal length; `first` is the number of the first part."""
        find = sample if sampling else beam_search
        width = options.n_best if sampling else options.beam
        order = [index for index, part in enumerate(parts) if part.ids]
        order.sort(key=lambda index: -len(parts[index].ids))
        found: list[list[Hypothesis]] = [[] for _ in parts]
        for chosen in _batches(order, max(1, ROWS // width)):
            sources, source, lengths, asked = self._batch([parts[index] for index in chosen], options)
            with autocast(self.precision, self.device):
                hypotheses = find(model, source, lengths, asked)
            if options.observer is not None:
                options.observer.found([first + index for index in chosen], sources, hypotheses)
            for index, each in zip(chosen, hypotheses, strict=True):
                found[index] = each
        return found

    @torch.inference_mode()
    def steps(
        self, model: NextToken, parts: Sequence[SourcePart], options: SearchOptions, gone: Collection[int] = ()
    ) -> Iterator[list[tuple[int, list[Hypothesis]]]]:
        """Search these parts together, step by step: which of them each step ended, and what became of them.

        Whoever takes the steps may add indices of parts to `gone` in between: these cost nothing any more.
        """
        _, source, lengths, asked = self._batch(parts, options)
        steps = beam_steps(model, source, lengths, asked, gone)
        while True:
            with autocast(self.precision, self.device):
                ended = next(steps, None)
            if ended is None:
                return
            yield ended

    def _batch(
        self, parts: Sequence[SourcePart], options: SearchOptions
    ) -> tuple[list[list[int]], Tensor, Tensor, SearchOptions]:
        """-> the sources, (B, S) the same padded, (B,) their lengths, and the options with what each part asks for."""
        specials = self.source_tokenizer.specials
        sources = [[*part.ids, specials.eos] for part in parts]
        lengths = torch.tensor([len(ids) for ids in sources])
        source = torch.full((len(sources), int(lengths.max())), specials.pad)
        for row, ids in zip(source, sources, strict=True):
            row[: len(ids)] = torch.tensor(ids)
        prefix, shortlists = tuple(part.prefix for part in parts), tuple(part.shortlist for part in parts)
        asked = {
            "prefix": prefix if any(prefix) else None,
            "shortlists": None if all(each is None for each in shortlists) else shortlists,
        }
        return sources, source.to(self.device), lengths.to(self.device), options.model_copy(update=asked)

    @torch.inference_mode()
    def score(self, pairs: Pairs) -> list[float]:
        """The log-probability of each target, given its source, under the model or the mean of an ensemble."""
        scores = [0.0] * len(pairs)
        for indices in plan_batches(pairs.source_lengths, pairs.target_lengths, SCORE_TOKENS, 0, 0):
            batch = self._collate(pairs, indices)
            padding = batch.labels == self.tokenizer.specials.pad
            total = self._log_probs(batch).masked_fill(padding, 0.0).double().sum(1)
            for index, value in zip(indices.tolist(), total.tolist(), strict=True):
                scores[index] = value
        return scores

    def _log_probs(self, batch: Batch) -> Tensor:
        """-> (B, T): the log-probability of each label; an ensemble averages the probabilities of every step."""
        each = []
        for model in self.models():
            with autocast(self.precision, self.device):
                logits = model.project(model(batch.source, batch.decoder_input)).float()  # (B, T, V)
            each.append(logits.gather(2, batch.labels.unsqueeze(2)).squeeze(2) - logits.logsumexp(2))
        return torch.stack(each).logsumexp(0) - torch.tensor(float(len(each))).log()

    @torch.inference_mode()
    def align(self, parts: Sequence[SourcePart], found: Sequence[list[Translation]]) -> Iterator[Translation]:
        """The translations of each part with their alignments, from the first model, one after the other.

        Words are counted over the whole line.
        """
        for part, translations in zip(parts, found, strict=True):
            source_words = part.words(self.source_tokenizer)
            for each in translations:
                target_words = words_of_spans(*self.tokenizer.decode_spans(each.ids))
                yield replace(each, alignment=align_words(self.attention(part, each), source_words, target_words))

    def attention(self, part: SourcePart, translation: Translation) -> Tensor:
        """-> (T, S): how much each output token attends to each source token, in the heads that follow the words."""
        pairs = Pairs.of([(part.ids, translation.ids)])
        with autocast(self.precision, self.device):
            return cross_attention(self.models()[0], self._collate(pairs, [0]))[0].float().cpu()

    def _collate(self, pairs: Pairs, indices: Any) -> Batch:
        source, target = self.source_tokenizer.specials, self.tokenizer.specials
        return collate(pairs, indices, source, target).to(self.device)


def _chunks(parts: Iterable[SourcePart | None]) -> Iterator[list[SourcePart]]:
    """Parts to be sorted by length together: those that are there, and few at first, so that none waits for many."""
    chunk: list[SourcePart] = []
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
