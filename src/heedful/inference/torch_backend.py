"""What a translator computes in PyTorch: searches and forced decoding that the native engine does not support."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from heedful.audio.log_mel import FeatureFrames
from heedful.data.audio_batch import pad_features
from heedful.inference.torch_forced_decoder import TorchForcedDecoder
from heedful.model.kv_cache import KVCache
from heedful.model.transformer import EncoderDecoder
from heedful.native import Engine
from heedful.native.torch_bridge import EngineNextToken
from heedful.ops.precision import autocast
from heedful.search import Hypothesis, NextToken, Observer, SearchOptions, SearchRequest
from heedful.search.beam import beam_search, beam_steps
from heedful.search.ensemble import Ensemble
from heedful.search.sample import sample
from heedful.text import Tokenizer


class ModelNextToken:
    """An encoder-decoder in PyTorch as a `NextToken`."""

    def __init__(self, model: EncoderDecoder) -> None:
        self.model = model
        self.bos_id, self.eos_id, self.pad_id = model.config.bos_id, model.config.eos_id, model.config.pad_id
        self.vocab_size = model.config.vocab_size

    def start(self, source: Tensor, source_lengths: Tensor) -> KVCache:
        return self.model.start(source, source_lengths)

    def step(self, ids: Tensor, cache: Any) -> Tensor:
        hidden = self.model.step(ids.unsqueeze(1), cache).squeeze(1)  # (R, D)
        return self.model.project(hidden, cache.copies).float().log_softmax(-1)


class TorchBackend:
    """One model, or several as an ensemble; `models` loads them on first use."""

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
        """The model, or the ensemble, as search sees it; computed by the native engines, if there are any."""
        members: list[NextToken] = [EngineNextToken(engine) for engine in engines]
        members = members or [ModelNextToken(model) for model in self.models()]
        return members[0] if len(members) == 1 else Ensemble(members)

    def forced_decoders(self) -> list[TorchForcedDecoder]:
        """Each model."""
        return [TorchForcedDecoder(model, self.precision, str(self.device)) for model in self.models()]

    @torch.inference_mode()
    def search_batch(
        self, model: NextToken, requests: Sequence[SearchRequest], sampling: bool, observer: Observer | None
    ) -> list[list[Hypothesis]]:
        """Search requests with the same options together, by beam search or sampling -> the hypotheses of each."""
        source, lengths, options = self._batch(requests)
        search = sample if sampling else beam_search
        with autocast(self.precision, self.device):
            return search(model, source, lengths, options.model_copy(update={"observer": observer}))

    @torch.inference_mode()
    def search_steps(
        self, model: NextToken, requests: Sequence[SearchRequest], cancelled: Collection[int]
    ) -> Iterator[list[tuple[int, list[Hypothesis]]]]:
        """Beam search step by step -> the requests that each step finished, by place, with their hypotheses.

        The caller may add places to `cancelled` between steps: these requests end with the next one.
        """
        steps = beam_steps(model, *self._batch(requests), cancelled)
        while True:
            with autocast(self.precision, self.device):
                finished = next(steps, None)
            if finished is None:
                return
            yield finished

    @torch.inference_mode()
    def first_step(self, source: FeatureFrames) -> Tensor:
        """-> (V,): log-probabilities of the first token of a transcript."""
        features, lengths = self._pad_sources([source])
        model = self.next_token([])
        with autocast(self.precision, self.device):
            cache = model.start(features.to(self.device), lengths.to(self.device))
            return model.step(torch.tensor([model.bos_id], device=self.device), cache)[0]

    def _batch(self, requests: Sequence[SearchRequest]) -> tuple[Tensor, Tensor, SearchOptions]:
        """-> padded sources (B, S), (B,) their lengths, the options with prefix, shortlist and phrases of each."""
        source, lengths = self._pad_sources([request.source for request in requests])
        prefixes = tuple(request.prefix for request in requests)
        shortlists = tuple(request.shortlist for request in requests)
        changes = {
            "prefix": prefixes if any(prefixes) else None,
            "shortlists": None if all(shortlist is None for shortlist in shortlists) else shortlists,
            "phrases": tuple(request.phrases for request in requests) if any(r.phrases for r in requests) else None,
        }
        options = requests[0].options.model_copy(update=changes)
        return source.to(self.device), lengths.to(self.device), options

    def _pad_sources(self, sources: Sequence[list[int] | FeatureFrames]) -> tuple[Tensor, Tensor]:
        """-> (B, S) ids or (B, frames, F) features, and (B,) lengths."""
        recordings = [source for source in sources if isinstance(source, FeatureFrames)]
        if recordings:
            return pad_features(recordings)
        lengths = torch.tensor([len(source) for source in sources])
        padded = torch.full((len(sources), int(lengths.max())), self.source_tokenizer.specials.pad)
        for row, ids in zip(padded, sources, strict=True):
            row[: len(ids)] = torch.tensor(ids)
        return padded, lengths
