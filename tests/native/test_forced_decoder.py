"""Forced decoding in the compiled engine: the log-probabilities and attention of torch, the same bits in any batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from heedful.config import ModelConfig
from heedful.errors import HeedfulError
from heedful.inference.record import record
from heedful.model.transformer import build_model
from heedful.native import Engine, library
from heedful.native.forced_decoder import EngineForcedDecoder, Pair
from heedful.native.torch_bridge import ModuleWeights

pytestmark = pytest.mark.skipif(library() is None, reason="there is no compiled engine")
V = 61
SIZES = {"vocab_size": V, "d_model": 24, "d_ff": 40, "n_heads": 3, "encoder_layers": 2, "decoder_layers": 3}
SIZES |= {"max_length": 90, "dropout": 0.0}
SETTINGS = [
    {},
    {"pre_norm": True, "positions": "rotary", "activation": "gelu", "tie": "none", "source_vocab_size": 70},
    {"positions": "alibi", "activation": "swiglu", "output_bias": True, "embedding_norm": True},
    {"positions": "learned", "activation": "relu", "encoder_layers": 1, "bias": False},
    {"pointer": True},
]


def module(settings: dict[str, object]) -> torch.nn.Module:
    torch.manual_seed(1)
    made = build_model(ModelConfig(**SIZES | settings))  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in made.parameters():  # biases and norms that matter, and distributions with a shape
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return made.eval()


def drawn_pairs() -> list[Pair]:
    """Of every length from the shortest to what needs several decoder steps."""
    random = np.random.default_rng(4)
    lengths = [(1, 0), (2, 1), (5, 9), (40, 88), (90, 3), *random.integers(1, 20, (12, 2)).tolist()]
    return [
        ([*random.integers(4, V, source - 1).tolist(), 2], [1, *random.integers(4, V, target).tolist(), 2])
        for source, target in lengths
    ]


PAIRS = drawn_pairs()
HIDDEN = [len(source) // 2 if len(source) > 1 else -1 for source, _ in PAIRS]  # never a source's only token


def expected(model: torch.nn.Module, pair: Pair, hidden: int) -> tuple[np.ndarray, np.ndarray]:
    """In float64: log-probabilities (T,) of the labels, attention (L, H, T, S)."""
    source, target = torch.tensor([pair[0]]), torch.tensor([pair[1]])
    if hidden >= 0:
        source[0, hidden] = model.config.pad_id
    with torch.no_grad(), record(model, "decoder.*.cross.weights") as trace:
        log_probs = model.target_logits(source, target[:, :-1])[0].log_softmax(-1)  # type: ignore[operator]
    weights = torch.stack([layer[0].as_subclass(torch.Tensor) for layer in trace.values()])
    return log_probs.gather(1, target[0, 1:, None])[:, 0].numpy(), weights.numpy()


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_log_probabilities_and_attention_are_those_of_torch(settings: dict[str, object]) -> None:
    model = module(settings)
    decoder = EngineForcedDecoder(Engine(ModuleWeights(model), int8=False), 3)  # type: ignore[arg-type]
    model.double()
    log_probs, hidden_log_probs = decoder.log_probs(PAIRS), decoder.log_probs(PAIRS, HIDDEN)
    attention = decoder.attention(PAIRS, decoder.heads)
    for i, pair in enumerate(PAIRS):
        exact, weights = expected(model, pair, -1)
        np.testing.assert_allclose(log_probs[i], exact, rtol=1e-5, atol=1e-4)
        np.testing.assert_allclose(attention[i], weights.reshape(attention[i].shape), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(hidden_log_probs[i], expected(model, pair, HIDDEN[i])[0], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("int8", [False, True])
def test_a_pair_has_the_same_numbers_alone_and_in_any_batch(int8: bool) -> None:
    engine = Engine(ModuleWeights(module({})), int8=int8)  # type: ignore[arg-type]
    together, heads = EngineForcedDecoder(engine, 3), [(2, 1), (0, 0)]
    log_probs, attention = together.log_probs(PAIRS, HIDDEN), together.attention(PAIRS, heads)
    for i, pair in enumerate(PAIRS):
        alone = EngineForcedDecoder(engine, 1)
        assert np.array_equal(alone.log_probs([pair], HIDDEN[i : i + 1])[0], log_probs[i])
        assert np.array_equal(alone.attention([pair], heads)[0], attention[i])
        everything = alone.attention([pair], alone.heads)[0]
        assert np.array_equal(attention[i], everything[[7, 0]])  # layer 2 of 3 heads, head 1; the first


def test_no_pairs_and_too_long_ones() -> None:
    decoder = EngineForcedDecoder(Engine(ModuleWeights(module({})), int8=False), 1)  # type: ignore[arg-type]
    assert decoder.log_probs([]) == decoder.attention([], decoder.heads) == []
    with pytest.raises(ValueError, match="91 tokens, but the model takes 90 at most"):
        decoder.log_probs([([5] * 91, [1, 2])])


def test_damaged_weights_are_refused() -> None:
    model = module({})
    with torch.no_grad():
        model.get_parameter("decoder.0.feed.up.bias").fill_(float("nan"))
    decoder = EngineForcedDecoder(Engine(ModuleWeights(model), int8=False), 2)  # type: ignore[arg-type]
    with pytest.raises(HeedfulError, match="probabilities are not numbers"):
        decoder.log_probs(PAIRS)
