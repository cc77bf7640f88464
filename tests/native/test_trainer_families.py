"""Training of every family and option by the compiled engine: the loss and gradients of torch in float64."""

import copy
import math
import random

import pytest
import torch

from heedful.config import ModelConfig, load_config
from heedful.data.batch import Batch, LabeledBatch, collate
from heedful.data.blocks import TokenBlocks
from heedful.data.masking import MaskedBatch
from heedful.data.pairs import Pairs
from heedful.model.transformer import Model, build_model
from heedful.native.engine import library
from heedful.native.flat_batch import TrainingBatch
from heedful.native.trainer import native_trainer
from heedful.ops.cross_entropy import Loss
from heedful.text import Specials
from heedful.training.losses import classification_loss, language_loss, masked_loss, translation_loss
from heedful.training.step import Gradients

pytestmark = pytest.mark.skipif(library() is None, reason="there is no compiled engine")
V = 83
SIZES = {"vocab_size": V, "d_model": 64, "d_ff": 96, "n_heads": 2, "encoder_layers": 2, "decoder_layers": 2}
SIZES |= {"dropout": 0.0, "max_length": 80, "pad_id": 0, "bos_id": 2, "eos_id": 3, "scale_embedding": False}
LABELS = {"labels": ("a", "b", "c", "d", "e")}

PAIRS = [
    {"activation": "gelu", "positions": "learned", "output_bias": True},
    {"activation": "gelu_tanh", "positions": "rotary", "tie": "target", "pre_norm": True},
    {"activation": "silu", "positions": "alibi", "tie": "none", "bias": False},
    {"activation": "swiglu", "tie": "target", "source_vocab_size": 57, "embedding_norm": True},
]
BLOCKS = [
    {"pre_norm": True, "positions": "rotary", "activation": "gelu"},
    {"pre_norm": True, "positions": "learned", "activation": "gelu_tanh", "bias": False},
    {"positions": "alibi", "activation": "swiglu", "tie": "none", "output_bias": True},
    {"positions": "sinusoidal", "embedding_norm": True, "scale_embedding": True, "n_heads": 1},
]
MASKED = [
    {"pre_norm": True, "positions": "rotary", "activation": "gelu", "head": "transform", "output_bias": True},
    {"positions": "learned", "activation": "gelu", "embedding_norm": True, "head": "transform", "token_types": 2},
    {"positions": "alibi", "activation": "silu", "head": "linear", "tie": "none", "bias": False},
    {"positions": "sinusoidal", "activation": "relu", "head": "linear", "scale_embedding": True},
]
CLASSES = [
    LABELS | {"positions": "learned", "activation": "gelu", "pooler": True, "head": "none", "token_types": 2},
    LABELS | {"pre_norm": True, "positions": "rotary", "activation": "swiglu"},
    LABELS | {"positions": "sinusoidal", "activation": "gelu_tanh", "pooler": True, "scale_embedding": True},
]


def model_of(family: str, **settings: object) -> Model:
    torch.manual_seed(3)
    model = build_model(ModelConfig(**SIZES | {"family": family} | settings))  # type: ignore[arg-type]
    for parameter in model.parameters():
        if parameter.dim() == 1:  # norms and biases of 1 and 0 would hide mistakes
            torch.nn.init.normal_(parameter, mean=0.5, std=0.3)
    return model.train()


def pairs_of(sentences: int, source_vocabulary: int = V) -> Batch:
    chance = random.Random(1)
    ids = [[chance.randrange(4, v) for _ in range(chance.randint(1, 40))] for v in (source_vocabulary, V) * sentences]
    return collate(Pairs.of(list(zip(ids[::2], ids[1::2], strict=True))), range(sentences), Specials(0, 2, 3))


def blocks_of(rows: int, length: int) -> TokenBlocks:
    return TokenBlocks(torch.randint(4, V, (rows, length + 1), generator=torch.Generator().manual_seed(2)))


def texts_of(rows: int, longest: int = 37) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and token types, padded right; the first text is the longest."""
    generator = torch.Generator().manual_seed(4)
    lengths = torch.randint(2, longest + 1, (rows, 1), generator=generator)
    lengths[0] = longest
    ids = torch.randint(4, V, (rows, longest), generator=generator)
    types = torch.randint(2, (rows, longest), generator=generator)
    real = torch.arange(longest) < lengths
    return ids * real, types * real


def masked_of(rows: int) -> MaskedBatch:
    ids, types = texts_of(rows)
    generator = torch.Generator().manual_seed(5)
    chosen = (torch.rand(ids.shape, generator=generator) < 0.15) & (ids != 0)
    chosen[:, 0] = torch.arange(rows) % 3 > 0  # some texts may have no masked token at all
    labels = torch.randint(4, V, ids.shape, generator=generator)
    return MaskedBatch(ids, types, labels, chosen, int(chosen.sum()))


def labeled_of(rows: int) -> LabeledBatch:
    return LabeledBatch(*texts_of(rows), torch.arange(rows) % 5)


def torch_loss(model: Model, batch: TrainingBatch, smoothing: float, sampled: int = 0) -> Loss:
    match batch:
        case Batch():
            return translation_loss(model, batch, smoothing, sampled)  # type: ignore[arg-type]
        case TokenBlocks():
            return language_loss(model, batch, smoothing, sampled)  # type: ignore[arg-type]
        case MaskedBatch():
            return masked_loss(model, batch, smoothing, sampled)  # type: ignore[arg-type]
        case LabeledBatch():
            return classification_loss(model, batch, smoothing, sampled)  # type: ignore[arg-type]


def gradients_of(model: Model, loss: Loss) -> dict[str, torch.Tensor]:
    model.zero_grad()
    (loss.smoothed / loss.tokens).backward()  # type: ignore[no-untyped-call]
    grads = {name: parameter.grad for name, parameter in model.named_parameters()}
    return {name: torch.zeros(1) if grad is None else grad.clone() for name, grad in grads.items()}


def compare(model: Model, batch: TrainingBatch, smoothing: float = 0.1, sampled: int = 0) -> None:
    """Losses and all gradients to 4e-5 in float32, and to its precision in bfloat16."""
    exact = copy.deepcopy(model).double()
    torch.manual_seed(9)
    expected = torch_loss(exact, batch, smoothing, sampled)
    expected_grads = gradients_of(exact, expected)
    size = math.sqrt(sum(float(grad.pow(2).sum()) for grad in expected_grads.values()))
    for precision, tolerance in (("float32", 4e-5), ("bfloat16", 0.04)):
        trainer = native_trainer(model, precision)
        assert trainer is not None
        torch.manual_seed(9)
        loss = trainer.loss(batch, smoothing, sampled)
        assert loss.tokens == expected.tokens
        for actual, reference in ((loss.smoothed, expected.smoothed), (loss.likelihood, expected.likelihood)):
            assert actual.item() == pytest.approx(reference.item(), rel=tolerance / 10)
        for name, grad in gradients_of(model, loss).items():
            apart = (grad - expected_grads[name]).norm()
            assert apart <= tolerance * (expected_grads[name].norm() + 0.3 * size), f"{name} in {precision}"


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("settings", PAIRS, ids=str)
def test_encoder_decoders(settings: dict[str, object], threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    batch = pairs_of(21, int(settings.get("source_vocab_size", V)))  # type: ignore[call-overload]
    compare(model_of("encoder-decoder", **settings), batch)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("settings", BLOCKS, ids=str)
def test_decoders(settings: dict[str, object], threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    compare(model_of("decoder", **settings), blocks_of(9, 67))
    compare(model_of("decoder", **settings), blocks_of(1, 5), smoothing=0.0)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("settings", MASKED, ids=str)
def test_masked_language_models(settings: dict[str, object], threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    compare(model_of("encoder", **settings), masked_of(19))
    compare(model_of("encoder", **settings), masked_of(2), smoothing=0.0)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("settings", CLASSES, ids=str)
def test_classifiers(settings: dict[str, object], threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    compare(model_of("encoder", **settings), labeled_of(23))
    compare(model_of("encoder", **settings), labeled_of(1), smoothing=0.0)


def test_sampled_softmax_with_an_output_bias() -> None:
    compare(model_of("decoder", output_bias=True), blocks_of(3, 9), 0.1, sampled=20)


@pytest.mark.parametrize("rates", [{"attention_dropout": 0.3}, {"activation_dropout": 0.3}, {"embedding_norm": True}])
def test_gradients_with_dropout_predict_the_change_of_the_loss(rates: dict[str, object]) -> None:
    """Finite differences along the gradient, with the same dropout masks."""
    model = model_of("decoder", positions="rotary", activation="gelu", **{"dropout": 0.2} | rates)
    batch, trainer = blocks_of(6, 50), native_trainer(model)
    assert trainer is not None

    def loss() -> Loss:
        torch.manual_seed(5)
        return trainer.loss(batch)

    without = native_trainer(model_of("decoder", positions="rotary", activation="gelu"))
    assert without is not None
    assert loss().smoothed.item() != pytest.approx(without.loss(batch).smoothed.item(), rel=1e-4)
    grads = gradients_of(model, loss())
    length = math.sqrt(sum(float(grad.pow(2).sum()) for grad in grads.values()))
    losses = []
    for step in (-1e-3, 2e-3):
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.add_(grads[name], alpha=step / length)
        losses.append(loss().smoothed.item() / batch.tokens)
    assert (losses[1] - losses[0]) / 2e-3 == pytest.approx(length, rel=0.02)


def test_flat_gradients_are_those_of_autograd_and_accumulate() -> None:
    model, batches = model_of("decoder"), [blocks_of(4, 30), blocks_of(2, 11)]
    trainer = native_trainer(model)
    assert trainer is not None
    model.zero_grad()
    for batch in batches:
        (trainer.loss(batch).smoothed / 7).backward()  # type: ignore[no-untyped-call]
    expected = {
        name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None
    }
    flat = Gradients(model)
    both = [trainer.loss(batch).smoothed / 7 for batch in batches]
    for loss in both:
        loss.backward()  # type: ignore[no-untyped-call]
    assert flat.weights.any()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-6, atol=1e-7)


def test_hooks_see_the_gradient_of_their_parameter() -> None:
    model = model_of("decoder")
    trainer, flat = native_trainer(model), Gradients(model)
    assert trainer is not None
    model.embedding.weight.register_hook(lambda gradient: gradient * 0)  # type: ignore[no-untyped-call]
    trainer.loss(blocks_of(2, 9)).smoothed.backward()  # type: ignore[no-untyped-call]
    assert not flat.weights[: model.embedding.weight.numel()].any()
    assert flat.weights.any()


def test_blocks_longer_than_max_length_are_refused() -> None:
    trainer = native_trainer(model_of("decoder"))
    assert trainer is not None
    with pytest.raises(ValueError, match="81 tokens, but the model takes 80 at most"):
        trainer.loss(blocks_of(1, 81))


@pytest.mark.parametrize("family", ["decoder", "encoder"])
@pytest.mark.parametrize("name", ["tiny", "small", "base"])
def test_every_preset_of_a_language_model_is_supported(name: str, family: str) -> None:
    words = [f"model.vocab_size={V}", "model.encoder_layers=1", "model.decoder_layers=1"]
    config = load_config(None, words).with_preset(name, family).model  # type: ignore[arg-type]
    assert native_trainer(build_model(config)) is not None
