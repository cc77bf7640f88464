"""One update is the same however it is cut: the contract that accumulation and ranks rest on."""

import copy
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch._dynamo.exc import TorchDynamoException
from torch._dynamo.utils import counters

from heedful.config import ModelConfig, TrainSettings
from heedful.data.batch import Batch, collate
from heedful.data.pairs import Pairs
from heedful.errors import TrainingError
from heedful.model.transformer import EncoderDecoder
from heedful.ops.cross_entropy import Loss
from heedful.text import Specials
from heedful.training import step
from heedful.training.distributed import Distributed
from heedful.training.loop import compiling
from heedful.training.losses import translation_loss
from heedful.training.step import Gradients, apply_update, build_optimizer, freeze_rows

CONFIG = ModelConfig(
    vocab_size=30, d_model=16, d_ff=32, n_heads=2, encoder_layers=1, decoder_layers=1, max_length=32, dropout=0.0
)
SETTINGS = TrainSettings(clip_norm=1.0)


@pytest.fixture
def model() -> EncoderDecoder:
    torch.manual_seed(0)
    return EncoderDecoder(CONFIG).train()


@pytest.fixture
def pairs() -> Pairs:
    random = np.random.default_rng(0)
    rows = [tuple(random.integers(4, 30, random.integers(2, 9)).tolist() for _ in range(2)) for _ in range(8)]
    return Pairs.of(rows)


def updated(
    model: EncoderDecoder, batches: Sequence[Batch], updates: int = 3, compiler: str = ""
) -> tuple[list[float], EncoderDecoder]:
    model = copy.deepcopy(model)
    if compiler:
        model.compile(dynamic=True, backend=compiler)
    optimizer, gradients = build_optimizer(model, SETTINGS), Gradients(model)
    tokens = sum(batch.tokens for batch in batches)
    losses = []
    for update in range(1, updates + 1):
        outcome = apply_update(
            list(enumerate(batches)), lambda batch: translation_loss(model, batch, 0.1), gradients, optimizer,
            Distributed("cpu"), settings=SETTINGS, update=update, tokens=tokens, rate=0.01,
        )  # fmt: skip
        losses.append(outcome.loss)
    return losses, model


def cut(pairs: Pairs, count: int) -> list[Batch]:
    return [collate(pairs, part, Specials(0, 2, 3)) for part in np.array_split(np.arange(8), count)]


def assert_same_weights(one: EncoderDecoder, other: EncoderDecoder) -> None:
    for (name, a), b in zip(one.named_parameters(), other.parameters(), strict=True):
        if not name.endswith(
            "key.bias"
        ):  # softmax does not see it: its gradient is rounding noise, which Adam blows up
            torch.testing.assert_close(a, b, rtol=1e-4, atol=2e-5, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("count", [2, 4, 8])
def test_one_batch_of_eight_equals_accumulation(model: EncoderDecoder, pairs: Pairs, count: int) -> None:
    whole, one = updated(model, cut(pairs, 1))
    parts, many = updated(model, cut(pairs, count))
    assert parts == pytest.approx(whole, rel=1e-5)
    assert_same_weights(one, many)


def test_the_loss_is_the_mean_over_tokens_not_over_micro_batches(model: EncoderDecoder, pairs: Pairs) -> None:
    losses, _ = updated(model, cut(pairs, 4), updates=1)
    sums = [translation_loss(model, batch, 0.1) for batch in cut(pairs, 4)]
    assert losses[0] == pytest.approx(
        sum(float(s.smoothed.detach()) for s in sums) / sum(s.tokens for s in sums), rel=1e-5
    )


def test_dropout_follows_from_seed_update_and_micro_batch_alone(pairs: Pairs) -> None:
    torch.manual_seed(0)
    model = EncoderDecoder(CONFIG.model_copy(update={"dropout": 0.3})).train()
    first, a = updated(model, cut(pairs, 2))
    torch.manual_seed(99)
    second, b = updated(model, cut(pairs, 2))
    assert first == second
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    assert first != updated(model, list(reversed(cut(pairs, 2))))[0]


def test_random_numbers_are_those_of_torch_manual_seed_without_calls_for_other_devices(
    model: EncoderDecoder, pairs: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds, drawn, others = iter(range(10)), list[torch.Tensor](), list[int]()

    def loss_of(batch: Batch) -> Loss:
        drawn.append(torch.rand(3))
        return translation_loss(model, batch)

    monkeypatch.setattr(step, "_seed", lambda *_: next(seeds))
    monkeypatch.setattr(torch.cuda, "manual_seed_all", others.append)
    apply_update(
        list(enumerate(cut(pairs, 2))), loss_of, Gradients(model), build_optimizer(model, SETTINGS),
        Distributed("cpu"), settings=SETTINGS, update=1, tokens=1, rate=0.0,
    )  # fmt: skip
    assert not others
    for seed, numbers in enumerate(drawn):
        torch.manual_seed(seed)
        assert torch.equal(numbers, torch.rand(3))


def test_gradients_are_clipped_to_the_norm(model: EncoderDecoder, pairs: Pairs) -> None:
    optimizer, gradients = build_optimizer(model, SETTINGS), Gradients(model)
    batch = cut(pairs, 1)[0]
    outcome = apply_update(
        [(0, batch)], lambda batch: translation_loss(model, batch), gradients, optimizer, Distributed("cpu"),
        settings=TrainSettings(clip_norm=0.5), update=1, tokens=batch.tokens, rate=0.0,
    )  # fmt: skip
    assert outcome.norm > 0.5
    assert float(gradients.weights.norm()) == pytest.approx(0.5, rel=1e-4)


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_stops_before_the_weights_change(
    model: EncoderDecoder, pairs: Pairs, poison: float
) -> None:
    before = copy.deepcopy(model.state_dict())
    batch = cut(pairs, 1)[0]

    def poisoned(batch: Batch) -> Loss:
        loss = translation_loss(model, batch)
        return Loss(loss.smoothed * poison, loss.likelihood, loss.tokens)

    with pytest.raises(TrainingError, match=r"at update 7: training stopped before the weights were changed"):
        apply_update(
            [(0, batch)], poisoned, Gradients(model), build_optimizer(model, SETTINGS), Distributed("cpu"),
            settings=SETTINGS, update=7, tokens=batch.tokens, rate=0.1,
        )  # fmt: skip
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_frozen_rows_stay_and_the_others_learn(model: EncoderDecoder, pairs: Pairs) -> None:
    rows = torch.tensor([5, 9, 17])
    before = model.embedding.weight.detach().clone()
    freeze_rows(model.embedding.weight, rows)
    optimizer, gradients = build_optimizer(model, SETTINGS), Gradients(model)
    batch = cut(pairs, 1)[0]
    apply_update(
        [(0, batch)], lambda batch: translation_loss(model, batch), gradients, optimizer, Distributed("cpu"),
        settings=SETTINGS, update=1, tokens=batch.tokens, rate=0.1,
    )  # fmt: skip
    changed = (model.embedding.weight.detach() != before).any(1)
    assert not changed[rows].any()
    assert changed.sum() == 30 - len(rows)


def test_adam_equals_torch_adam_with_the_settings_of_the_paper(model: EncoderDecoder, pairs: Pairs) -> None:
    _, actual = updated(model, cut(pairs, 1), updates=5)
    expected = copy.deepcopy(model)
    adam = torch.optim.Adam(expected.parameters(), lr=0.01, betas=(0.9, 0.98), eps=1e-9)
    batch = cut(pairs, 1)[0]
    for _ in range(5):
        adam.zero_grad()
        (translation_loss(expected, batch, 0.1).smoothed / batch.tokens).backward()
        torch.nn.utils.clip_grad_norm_(expected.parameters(), 1.0)
        adam.step()
    assert_same_weights(actual, expected)


@pytest.mark.parametrize("compiler", ["eager", pytest.param("aot_eager", marks=pytest.mark.long)])
def test_a_compiled_model_learns_the_same(model: EncoderDecoder, pairs: Pairs, compiler: str) -> None:
    plain, one = updated(model, cut(pairs, 4))  # pieces of several shapes
    graphs = counters["stats"]["unique_graphs"]
    compiled, other = updated(model, cut(pairs, 4), compiler=compiler)  # all but making kernels, which takes minutes
    assert 1 <= counters["stats"]["unique_graphs"] - graphs <= 3  # whole, and for all shapes
    assert compiled == pytest.approx(plain, rel=1e-5)
    assert_same_weights(one, other)


def test_what_the_compiler_lacks_is_said_in_one_sentence() -> None:
    message = r"^torch\.compile could not compile .*: no g\+\+; leave out train\.compile"
    with pytest.raises(TrainingError, match=message), compiling():
        raise TorchDynamoException("no g++\n\nand much that helps nobody")
