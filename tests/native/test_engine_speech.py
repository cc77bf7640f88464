"""Speech recognizers in the compiled engine: the numbers of torch, alone and in any batch to the bit."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from heedful.audio.log_mel import FeatureFrames
from heedful.config import ModelConfig
from heedful.errors import HeedfulError
from heedful.inference.torch_backend import ModelNextToken
from heedful.inference.torch_forced_decoder import TorchForcedDecoder
from heedful.model.transformer import EncoderDecoder, build_model
from heedful.native import Engine, EngineSearch, library
from heedful.native.forced_decoder import EngineForcedDecoder, Pair
from heedful.native.torch_bridge import EngineNextToken, ModuleWeights
from heedful.search import Hypothesis, RowConstraint, SearchOptions, SearchRequest
from heedful.search.beam import beam_search

pytestmark = pytest.mark.skipif(library() is None, reason="there is no compiled engine")
V, BINS = 61, 10
SIZES: dict[str, Any] = {"vocab_size": V, "d_model": 24, "d_ff": 40, "n_heads": 3, "encoder_layers": 2}
SIZES |= {"decoder_layers": 2, "features": BINS, "max_length": 16, "source_max_length": 150, "activation": "gelu"}
KINDS: list[dict[str, Any]] = [
    {"pre_norm": True, "positions": "learned"},
    {"feature_stride": 4, "tie": "none", "output_bias": True},
    {"positions": "alibi", "bias": False, "ctc": True},
    {"pre_norm": True, "positions": "rotary", "embedding_norm": True, "n_heads": 2},
]
LENGTHS = (70, 1, 33, 150, 64, 63)  # positions: long ones are attended to in blocks


def module(settings: dict[str, Any]) -> EncoderDecoder:
    torch.manual_seed(1)
    made = build_model(ModelConfig(**SIZES | settings))
    assert isinstance(made, EncoderDecoder)
    with torch.no_grad():
        for parameter in made.parameters():  # biases and norms that matter, and distributions with a shape
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return made.eval()


def recordings(config: ModelConfig) -> list[FeatureFrames]:
    random = np.random.default_rng(3)
    frames = [random.normal(size=(length * config.feature_stride, BINS)) for length in LENGTHS]
    return [FeatureFrames.of(features.astype(np.float32), config.feature_stride) for features in frames]


def padded(sources: Sequence[FeatureFrames]) -> tuple[torch.Tensor, torch.Tensor]:
    frames = torch.zeros(len(sources), max(len(source.frames) for source in sources), BINS)
    for row, source in zip(frames, sources, strict=True):
        row[: len(source.frames)] = torch.from_numpy(source.frames)
    return frames, torch.tensor([source.positions for source in sources])


def log_probs(next_token: Any, sources: Sequence[FeatureFrames]) -> torch.Tensor:
    """(steps, B, V): the same tokens follow in every row."""
    cache = next_token.start(*padded(sources))
    return torch.stack([next_token.step(torch.full((len(sources),), token), cache) for token in (1, 17, 5, 44)])


@torch.inference_mode()
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("settings", KINDS, ids=str)
def test_log_probabilities_are_those_of_torch(settings: dict[str, Any], threads: int) -> None:
    model = module(settings)
    engine, sources = Engine(ModuleWeights(model), int8=False), recordings(model.config)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        actual = log_probs(EngineNextToken(engine), sources)
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(actual, log_probs(ModelNextToken(model), sources), rtol=1e-4, atol=1e-4)
    for place, source in enumerate(sources):
        assert torch.equal(log_probs(EngineNextToken(engine), [source])[:, 0], actual[:, place])


@torch.inference_mode()
def test_int8_is_near_float32() -> None:
    model = module(KINDS[0])
    sources = recordings(model.config)
    exact = log_probs(ModelNextToken(model), sources).exp()
    assert (
        log_probs(EngineNextToken(Engine(ModuleWeights(model), int8=True)), sources).exp() - exact
    ).abs().max() < 0.1


@torch.inference_mode()
@pytest.mark.parametrize("settings", KINDS, ids=str)
def test_forced_decoding_is_that_of_torch(settings: dict[str, Any]) -> None:
    model = module(settings)
    sources = recordings(model.config)
    targets = [[1, *np.random.default_rng(n).integers(4, V, n + 1).tolist(), 2] for n in range(len(sources))]
    pairs: list[Pair] = list(zip(sources, targets, strict=True))
    engine, decoder = EngineForcedDecoder(Engine(ModuleWeights(model), int8=False), 3), TorchForcedDecoder(model)
    log_probs, attention = engine.log_probs(pairs), engine.attention(pairs, engine.heads)
    for actual, expected in zip(log_probs, decoder.log_probs(pairs), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)
    for actual, expected in zip(attention, decoder.attention(pairs, decoder.heads), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
    for place, pair in enumerate(pairs):
        assert np.array_equal(engine.attention([pair], engine.heads)[0], attention[place])
        assert np.array_equal(engine.log_probs([pair])[0], log_probs[place])


@torch.inference_mode()
def test_forced_decoding_is_the_same_where_a_step_takes_fewer_tokens() -> None:
    """The attention of 64 tokens to 1,500 positions in 48 heads would take more memory than a step may have."""
    sizes = {"n_heads": 12, "encoder_layers": 1, "decoder_layers": 4, "source_max_length": 1500, "max_length": 70}
    model = module(KINDS[0] | sizes)
    random = np.random.default_rng(4)
    frames = random.normal(size=(1500 * model.config.feature_stride, BINS)).astype(np.float32)
    target = [1, *random.integers(4, V, 66).tolist(), 2]
    pairs: list[Pair] = [(FeatureFrames.of(frames, model.config.feature_stride), target)]
    engine, decoder = EngineForcedDecoder(Engine(ModuleWeights(model), int8=False), 2), TorchForcedDecoder(model)
    ours, theirs = engine.attention(pairs, engine.heads)[0], decoder.attention(pairs, decoder.heads)[0]
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(engine.log_probs(pairs)[0], decoder.log_probs(pairs)[0], rtol=1e-4, atol=1e-4)


def test_forced_decoding_reads_frames_in_any_memory_order() -> None:
    model = module(KINDS[0])
    engine = EngineForcedDecoder(Engine(ModuleWeights(model), int8=False), 1)
    (expected,) = engine.log_probs([(recordings(model.config)[0], [1, 7, 5, 2])])
    for change in (np.asfortranarray, lambda frames: frames.astype(np.float64)):
        changed = recordings(model.config)[0]
        object.__setattr__(changed, "frames", change(changed.frames))
        assert np.array_equal(engine.log_probs([(changed, [1, 7, 5, 2])])[0], expected)
    with pytest.raises(TypeError, match="recordings and ids"):
        engine.log_probs([(recordings(model.config)[0], [1, 2]), ([5, 6], [1, 2])])


class NoNeighbors(RowConstraint):
    """A token is never followed by one next to it, and number 7 never occurs."""

    def forbid(self, log_probs: npt.NDArray[Any], ids: Sequence[int]) -> None:
        log_probs[7] = -np.inf
        if ids:
            log_probs[max(0, ids[-1] - 1) : ids[-1] + 2] = -np.inf


def searched(engine: Engine, requests: Sequence[SearchRequest], threads: int = 1) -> list[list[Hypothesis]]:
    search = EngineSearch(engine, threads)
    numbers = [search.add(request) for request in requests]
    results: dict[int, list[Hypothesis]] = {}
    while len(results) < len(numbers):
        results |= dict(search.step())
    return [results[number] for number in numbers]


@torch.inference_mode()
@pytest.mark.parametrize("beam", [1, 3])
def test_searches_with_constraints_and_prefix_are_those_of_torch(beam: int) -> None:
    model = module(KINDS[0])
    engine, sources = Engine(ModuleWeights(model), int8=False), recordings(model.config)
    options = SearchOptions(beam=beam, n_best=beam, limit=15, constraints=(NoNeighbors(),))
    requests = [SearchRequest(source, options, (9, 10)) for source in sources]
    together = searched(engine, requests, threads=2)
    assert together == [searched(engine, [request])[0] for request in requests]
    prefixes = options.model_copy(update={"prefix": ((9, 10),) * len(sources)})
    expected = beam_search(ModelNextToken(model), *padded(sources), prefixes)
    for ours, theirs in zip(together, expected, strict=True):
        assert [hypothesis.ids for hypothesis in ours] == [hypothesis.ids for hypothesis in theirs]
        assert [hypothesis.score for hypothesis in ours] == pytest.approx(
            [hypothesis.score for hypothesis in theirs], abs=1e-4
        )
        for ids in (hypothesis.ids[2:] for hypothesis in ours):
            assert 7 not in ids and all(abs(a - b) > 1 for a, b in itertools.pairwise(ids))


class Broken(RowConstraint):
    def forbid(self, log_probs: npt.NDArray[Any], ids: Sequence[int]) -> None:
        raise KeyboardInterrupt


def test_errors() -> None:
    engine = Engine(ModuleWeights(module(KINDS[0])), int8=False)
    source, options = recordings(engine.config)[0], SearchOptions(beam=2, constraints=(Broken(),), max_length=9)
    with pytest.raises(KeyboardInterrupt):  # Ctrl-C while Python computes is not lost
        searched(engine, [SearchRequest(source, options)])
    with pytest.raises(HeedfulError, match="reads audio"):
        EngineSearch(engine).add(SearchRequest([5, 6], SearchOptions(beam=1, max_length=9)))
    with pytest.raises(ValueError, match="takes 150 at most"):
        EngineSearch(engine).add(
            SearchRequest(FeatureFrames(np.zeros((302, BINS), np.float32), 151), SearchOptions(max_length=9))
        )
