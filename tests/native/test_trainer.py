"""Training by the compiled engine: the loss and gradients of torch, and dropout at its rate."""

import copy
import math
import random

import pytest
import torch

from heedful.config import PRESETS, ModelConfig, load_config
from heedful.data.batch import collate
from heedful.data.pairs import Pairs
from heedful.model.transformer import build_model
from heedful.native.engine import library
from heedful.native.trainer import native_trainer, training_obstacle
from heedful.text import Specials
from heedful.training.losses import rdrop_loss, translation_loss

V = 211
LIBRARY = library()
WIDTH = 3 * LIBRARY.heedful_panel_width() // 2 if LIBRARY else 24
SHAPES = {
    "one head": {"n_heads": 1},
    "heads of a panel and a half": {"d_model": 96, "n_heads": 96 // WIDTH},
    "post-norm": {"pre_norm": False},
    "deep decoder": {"encoder_layers": 1, "decoder_layers": 3},
    "wide": {"d_model": 128, "d_ff": 320, "n_heads": 4},
    "plain embeddings": {"scale_embedding": False, "norm_eps": 1e-3},
    "pointer": {"pointer": True},
}

pytestmark = pytest.mark.skipif(library() is None, reason="there is no compiled engine")


def model_of(**settings):
    torch.manual_seed(3)
    shape = {"d_model": 64, "d_ff": 96, "n_heads": 2, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0}
    model = build_model(ModelConfig(vocab_size=V, max_length=64, **{"pre_norm": True, **shape, **settings}))
    for parameter in model.parameters():
        if parameter.dim() == 1:  # norms and biases of 1 and 0 would hide mistakes
            torch.nn.init.normal_(parameter, mean=0.5, std=0.3)
    return model.train()


def batch_of(sentences, longest=20, seed=1):
    chance = random.Random(seed)
    ids = [[chance.randrange(4, V) for _ in range(chance.randint(1, longest))] for _ in range(2 * sentences)]
    pairs = Pairs.of(list(zip(ids[::2], ids[1::2], strict=True)))
    return collate(pairs, range(sentences), Specials(pad=0, bos=2, eos=3))


def gradients(model, loss_of, seed=5):
    torch.manual_seed(seed)
    model.zero_grad()
    loss = loss_of()
    (loss.smoothed / loss.tokens).backward()
    result = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    return result, loss.smoothed.item(), loss.likelihood.item()


def assert_same(result, expected):
    assert result[1:] == pytest.approx(expected[1:], rel=1e-5)
    narrow = 4 if library().heedful_panel_width() < 16 else 1  # four lanes (NEON): sums are longer
    for name, gradient in expected[0].items():
        apart = (result[0][name] - gradient).abs().max()
        assert apart <= narrow * (1e-5 * gradient.abs().max() + 1e-6), name


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("sentences", [1, 2, 60])
@pytest.mark.parametrize("shape", SHAPES)
def test_loss_and_gradients_are_those_of_torch(shape, sentences, threads, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    model, batch = model_of(**SHAPES[shape]), batch_of(sentences)
    exact = copy.deepcopy(model).double()  # on some CPUs torch in float32 is less exact than the engine
    expected = gradients(exact, lambda: translation_loss(exact, batch, 0.1))
    assert_same(gradients(model, lambda: native_trainer(model).loss(batch, 0.1)), expected)


def assert_near(result, expected, bound):
    """All gradients together, and each that is not small, within the rounding error of bf16."""
    assert result[1:] == pytest.approx(expected[1:], rel=2e-3)
    apart, lengths = ({name: float(gradient.norm()) for name, gradient in of.items()} for of in (
        {name: result[0][name] - gradient for name, gradient in expected[0].items()}, expected[0]))  # fmt: skip
    whole = math.hypot(*lengths.values())
    assert math.hypot(*apart.values()) < bound * whole
    for name in apart:
        assert apart[name] < 3 * bound * lengths[name] + 0.02 * whole, name


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("sentences", [1, 2, 60])
@pytest.mark.parametrize("shape", SHAPES)
def test_bfloat16_is_right_to_its_precision(shape, sentences, threads, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    model, batch = model_of(**SHAPES[shape]), batch_of(sentences)
    expected = gradients(model, lambda: translation_loss(model, batch, 0.1))
    assert_near(gradients(model, lambda: native_trainer(model, "bfloat16").loss(batch, 0.1)), expected, 0.04)


@pytest.mark.parametrize("negatives", [0, 7, 50, V])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_sampled_softmax_in_bfloat16_is_right_to_its_precision(negatives, smoothing):
    model, batch = model_of(), batch_of(20)
    expected = gradients(model, lambda: translation_loss(model, batch, smoothing, negatives))
    result = gradients(model, lambda: native_trainer(model, "bfloat16").loss(batch, smoothing, negatives))
    assert_near(result, expected, 0.04)


@pytest.mark.parametrize("rdrop", [0.0, 5.0])
def test_gradients_of_confident_predictions_are_as_small_in_bfloat16(rdrop):
    """Gradients of such labels are small differences of large numbers, which must not be rounded to bf16 first."""
    model, batch = model_of(), batch_of(4).doubled() if rdrop else batch_of(8)
    engine, optimizer = native_trainer(model), torch.optim.Adam(model.parameters(), 3e-3)
    while (loss := engine.loss(batch)).likelihood / loss.tokens > 1e-3:
        optimizer.zero_grad()
        (loss.smoothed / loss.tokens).backward()
        optimizer.step()
    expected, *_ = gradients(model, lambda: engine.loss(batch, rdrop=rdrop))
    result, *_ = gradients(model, lambda: native_trainer(model, "bfloat16").loss(batch, rdrop=rdrop))
    apart, whole = (math.hypot(*(float(item.norm()) for item in of)) for of in (
        [result[name] - gradient for name, gradient in expected.items()], expected.values()))  # fmt: skip
    assert apart < 0.5 * whole


@pytest.mark.parametrize("negatives", [0, 7, 50, V])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_sampled_softmax_is_that_of_torch(negatives, smoothing):
    model, batch = model_of(), batch_of(20)
    expected = gradients(model, lambda: translation_loss(model, batch, smoothing, negatives))
    assert_same(gradients(model, lambda: native_trainer(model).loss(batch, smoothing, negatives)), expected)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("negatives", [0, 50])
@pytest.mark.parametrize("sentences", [1, 40])
def test_rdrop_is_that_of_torch(sentences, negatives, threads, monkeypatch):
    """Dropout masks differ from torch's, so here the sources of the two passes differ instead.

    In float32 torch is further from its own float64 than the engine.
    """
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    model, batch = model_of(), batch_of(sentences).doubled()
    batch.source[: len(batch) // 2].clamp_(max=60)
    exact = copy.deepcopy(model).double()
    expected = gradients(exact, lambda: rdrop_loss(exact, batch, 0.1, negatives, 5.0))
    without = gradients(exact, lambda: rdrop_loss(exact, batch, 0.1, negatives, 0.0))
    assert expected[1] > without[1] + 0.01 * sentences
    assert_same(gradients(model, lambda: native_trainer(model).loss(batch, 0.1, negatives, 5.0)), expected)
    in_bf16 = gradients(model, lambda: native_trainer(model, "bfloat16").loss(batch, 0.1, negatives, 5.0))
    assert_near(in_bf16, expected, 0.06)


def test_many_candidates_are_computed_in_chunks():
    torch.manual_seed(3)
    config = ModelConfig(
        vocab_size=9001, d_model=64, d_ff=64, n_heads=2, encoder_layers=1, decoder_layers=1, dropout=0.0, max_length=64
    )
    model, batch = build_model(config).train(), batch_of(40)
    expected = gradients(model, lambda: translation_loss(model, batch, 0.1))
    assert_same(gradients(model, lambda: native_trainer(model).loss(batch, 0.1)), expected)
    assert_near(gradients(model, lambda: native_trainer(model, "bfloat16").loss(batch, 0.1)), expected, 0.04)


def test_changed_weights_are_used_by_the_next_step():
    model, batch = model_of(), batch_of(5)
    by = native_trainer(model)
    before = by.loss(batch, 0.1).smoothed.item()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.9)
    after = by.loss(batch, 0.1).smoothed.item()
    assert after != before
    assert after == pytest.approx(translation_loss(model, batch, 0.1).smoothed.item(), rel=1e-5)


def test_sentences_longer_than_max_length_are_refused():
    pairs = Pairs.of([([5] * 64, [6])])  # and its end
    with pytest.raises(ValueError, match="65 tokens, but the model takes 64 at most"):
        native_trainer(model_of()).loss(collate(pairs, [0], Specials(pad=0, bos=2, eos=3)))


def test_dropout_masks_do_not_depend_on_the_precision():
    model, batch = model_of(dropout=0.3), batch_of(60)
    exact = gradients(model, lambda: native_trainer(model).loss(batch, 0.1))
    assert_near(gradients(model, lambda: native_trainer(model, "bfloat16").loss(batch, 0.1)), exact, 0.04)


@pytest.mark.parametrize("rdrop", [0.0, 5.0])
def test_gradients_with_dropout_predict_the_change_of_the_loss(rdrop):
    """Finite differences along the gradient, with the same dropout masks."""
    model, batch = model_of(dropout=0.3), batch_of(12).doubled()
    by, tokens = native_trainer(model), batch.tokens // 2 if rdrop else batch.tokens
    result, _, _ = gradients(model, lambda: by.loss(batch, 0.1, 0, rdrop))
    length = math.sqrt(sum(float(item.pow(2).sum()) for item in result.values()))
    losses = []
    for step in (-1e-3, 1e-3):
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.add_(result[name], alpha=step / length)
        losses.append(gradients(model, lambda: by.loss(batch, 0.1, 0, rdrop))[1] / tokens)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.sub_(result[name], alpha=step / length)
    assert (losses[1] - losses[0]) / 2e-3 == pytest.approx(length, rel=0.02)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_dropout_masks_follow_from_the_seed_alone(precision, monkeypatch):
    model, batch = model_of(dropout=0.3), batch_of(60)
    by = native_trainer(model, precision)
    first, again = gradients(model, lambda: by.loss(batch)), gradients(model, lambda: by.loss(batch))
    assert all(torch.equal(first[0][name], again[0][name]) for name in first[0])
    assert gradients(model, lambda: by.loss(batch), seed=6)[1] != first[1]
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert_same(gradients(model, lambda: by.loss(batch)), first)


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_dropout_has_its_rate_and_independent_masks(rate):
    """With layers that output zeros, hidden states are embeddings, whose gradients show the dropout masks."""
    model = model_of(dropout=rate, encoder_layers=1, decoder_layers=1, pre_norm=True)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".output." in name or ".down." in name:
                parameter.zero_()
    batch = batch_of(1, longest=20)
    ids = batch.decoder_input[0].unique()
    dropped = []
    for seed in range(400):
        result, _, _ = gradients(model, lambda: native_trainer(model).loss(batch, 0.0, sampled_softmax=1), seed)
        # a token that is not a label has a gradient only as decoder input
        only_read = [i for i in ids.tolist() if i not in batch.labels[0].tolist()]
        dropped.append(result["embedding.weight"][only_read] == 0)
    zeros = torch.stack(dropped).float()  # (seeds, tokens, D)
    assert float(zeros.mean()) == pytest.approx(rate, abs=5 * math.sqrt(rate * (1 - rate) / zeros.numel()))
    places = zeros.mean(0)
    assert float((places - rate).abs().max()) < 5 * math.sqrt(rate * (1 - rate) / len(zeros))
    columns = zeros.flatten(1)
    apart = columns - columns.mean(0)
    together = (apart[:, :-1] * apart[:, 1:]).mean(0) / (rate * (1 - rate))  # of neighbours
    assert float(together.mean().abs()) < 5 / math.sqrt(zeros.numel())


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"positions": "relative"}, "model.positions=relative"),
        ({"attention": "window"}, "model.attention=window"),
        ({"decoder_attention": "linear"}, "model.decoder_attention=linear"),
        ({"universal": True}, "model.universal=true"),
        ({"d_key": 16}, "model.d_key=16"),
        ({"n_heads": 32}, "model.d_model / n_heads is 2"),
        ({"d_ff": 100}, "model.d_ff is 100"),
    ],
    ids=str,
)
def test_unsupported_models_are_left_to_torch_and_the_reason_is_named(settings, reason):
    model = model_of(**settings)
    assert native_trainer(model) is None
    assert reason in training_obstacle(model)
    assert not training_obstacle(model_of())


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_of_a_translator_is_supported(name):
    words = [f"model.vocab_size={V}", "model.encoder_layers=1", "model.decoder_layers=1"]
    assert native_trainer(build_model(load_config(None, words).with_preset(name).model)) is not None
