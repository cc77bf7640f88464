"""The loss is a sum over real target tokens, smoothed as the paper or as others have it."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.config import ModelConfig, TrainSettings
from heedful.data.batch import Batch, LabeledBatch
from heedful.model.transformer import EncoderDecoder, build_model
from heedful.ops.cross_entropy import linear_cross_entropy
from heedful.training.losses import classification_loss, rdrop_loss, translation_loss, uniform_label_smoothing

SIZES = {"vocab_size": 19, "d_model": 16, "d_ff": 24, "n_heads": 4, "encoder_layers": 2, "decoder_layers": 2}


def model_of(**changes) -> EncoderDecoder:
    torch.manual_seed(0)
    return build_model(ModelConfig(**SIZES | {"max_length": 64, "dropout": 0.0} | changes))


def rows(lengths: list[int], generator: torch.Generator, start: bool) -> Tensor:
    """Real tokens, then the end (3), then padding (0); opened by the start (2) if asked."""
    ids = torch.zeros(len(lengths), max(lengths) + 1 + start, dtype=torch.long)
    for row, length in zip(ids, lengths, strict=True):
        words = torch.randint(4, 19, (length,), generator=generator).tolist()
        undivided = [2] * start + words + [3]
        row[: len(undivided)] = torch.tensor(undivided)
    return ids


def batch_of(sources: list[int], targets: list[int]) -> Batch:
    generator = torch.Generator().manual_seed(len(sources))
    source, target = rows(sources, generator, start=False), rows(targets, generator, start=True)
    lengths = torch.tensor(targets) + 1
    return Batch(source, target, torch.tensor(sources) + 1, lengths, int(lengths.sum()))


def part_of(batch: Batch, chosen: slice) -> Batch:
    lengths = batch.target_lengths[chosen]
    return Batch(batch.source[chosen], batch.target[chosen], batch.source_lengths[chosen], lengths, int(lengths.sum()))


BATCHES = [batch_of([6, 3], [4, 7]), batch_of([5, 2, 4], [3, 1, 6])]


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("changes", [{}, {"output_bias": True, "tie": "none"}])
def test_it_is_the_cross_entropy_of_all_logits_with_padding_ignored(batch, smoothing, changes):
    model = model_of(**changes)
    logits = model.project(model(batch.source, batch.target[:, :-1])).flatten(0, 1)
    options = {"ignore_index": 0, "reduction": "sum"}
    expected = F.cross_entropy(logits, batch.target[:, 1:].flatten(), label_smoothing=smoothing, **options)
    loss = translation_loss(model, batch, smoothing)
    torch.testing.assert_close(loss.smoothed, expected)
    torch.testing.assert_close(loss.likelihood, F.cross_entropy(logits, batch.target[:, 1:].flatten(), **options))
    assert loss.tokens == (batch.target[:, 1:] != 0).sum()
    slopes = [torch.autograd.grad(x, list(model.parameters())) for x in (loss.smoothed, expected)]
    torch.testing.assert_close(*slopes, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("batch", BATCHES)
def test_padding_changes_neither_loss_nor_gradient(batch):
    model = model_of()
    padded = replace(batch, source=F.pad(batch.source, (0, 3)), target=F.pad(batch.target, (0, 5)))
    results = []
    for one in (batch, padded):
        loss = translation_loss(model, one, 0.1)
        results.append([loss.smoothed, loss.likelihood, *torch.autograd.grad(loss.smoothed, list(model.parameters()))])
        assert loss.tokens == batch.tokens
    torch.testing.assert_close(*results, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("batch", BATCHES)
def test_micro_batches_add_up_to_the_batch(batch):
    model = model_of()
    pieces = [translation_loss(model, part_of(batch, slice(i, i + 1)), 0.1) for i in range(len(batch))]
    undivided = translation_loss(model, batch, 0.1)
    torch.testing.assert_close(sum(piece.smoothed for piece in pieces), undivided.smoothed)
    torch.testing.assert_close(sum(piece.likelihood for piece in pieces), undivided.likelihood)
    assert sum(piece.tokens for piece in pieces) == undivided.tokens


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("vocab_size", [4, 19])
def test_both_forms_of_smoothing_are_what_loops_compute(smoothing, vocab_size):
    """Uniform: ε / V for every token. Others: ε / (V - 1) for each wrong token, and nothing of it for the right one."""
    generator = torch.Generator().manual_seed(1)
    hidden, weight = torch.randn(6, 8, generator=generator), torch.randn(vocab_size, 8, generator=generator)
    labels = torch.randint(vocab_size, (6,), generator=generator)
    logits = (hidden.double() @ weight.double().t()).numpy()
    for form in ("uniform", "others"):
        expected = 0.0
        for row, label in zip(logits, labels.tolist(), strict=True):
            log_probs = row - math.log(np.exp(row).sum())
            for token in range(vocab_size):
                if form == "uniform":
                    share = smoothing / vocab_size + (1 - smoothing) * (token == label)
                else:
                    share = 1 - smoothing if token == label else smoothing / (vocab_size - 1)
                expected -= share * log_probs[token]
        settings = TrainSettings(label_smoothing=smoothing, label_smoothing_form=form)
        epsilon = uniform_label_smoothing(settings, ModelConfig(vocab_size=vocab_size))
        smoothed, _ = linear_cross_entropy(hidden, weight, None, labels, epsilon)
        assert smoothed.item() == pytest.approx(expected, rel=1e-5)


def test_the_likelihood_of_a_model_that_knows_nothing_is_the_logarithm_of_the_vocabulary():
    model = model_of()
    with torch.no_grad():
        model.embedding.weight.zero_()
        loss = translation_loss(model, BATCHES[1], 0.1)
    assert loss.likelihood.item() / loss.tokens == pytest.approx(math.log(19))
    assert loss.smoothed.item() / loss.tokens == pytest.approx(math.log(19))


def test_only_the_smoothed_sum_can_be_differentiated():
    loss = translation_loss(model_of(), BATCHES[0], 0.1)
    assert loss.smoothed.requires_grad
    assert not loss.likelihood.requires_grad


def test_halting_tokens_pay_for_their_steps_and_pieces_add_up():
    """Real tokens of both sides pay, padding does not; a batch costs what its pieces cost together."""
    generator = torch.Generator().manual_seed(3)
    source, target = rows([5, 2, 4, 3], generator, start=False), rows([3, 6, 2, 4], generator, start=True)
    lengths = torch.tensor([6, 3, 5, 4]), torch.tensor([4, 7, 3, 5])
    undivided = Batch(source, target, *lengths, int(lengths[1].sum()))
    model = model_of(universal=True, act_halting=True, ponder_cost=0.5, encoder_layers=4)
    free = model_of(universal=True, act_halting=True, ponder_cost=0.0, encoder_layers=4)
    spent = (translation_loss(model, undivided).smoothed - translation_loss(free, undivided).smoothed).item() / 0.5
    steps, tokens = translation_loss(model, undivided).pondered.tolist()
    assert tokens == 18 + 19
    assert tokens <= steps < spent <= steps + tokens  # every token has a remainder of at most one
    parts = [
        translation_loss(model, Batch(source[i : i + 2], target[i : i + 2], *(x[i : i + 2] for x in lengths), 0))
        for i in (0, 2)
    ]
    assert sum(part.smoothed.item() for part in parts) == pytest.approx(
        translation_loss(model, undivided).smoothed.item()
    )
    assert sum(part.pondered for part in parts).tolist() == [steps, tokens]
    assert translation_loss(model_of(), undivided).pondered is None


def test_a_text_with_one_label_pays_the_mean_of_its_tokens():
    """The cost of halting is that of the tap, averaged over each text; the length of a text does not matter."""
    ids = rows([5, 2, 9], torch.Generator().manual_seed(3), start=True)
    texts = LabeledBatch(ids, torch.zeros_like(ids), torch.tensor([0, 1, 0]))
    sizes = {"family": "encoder", "labels": ("no", "yes"), "universal": True, "act_halting": True}
    costly, free = (model_of(**sizes, encoder_layers=4, ponder_cost=cost) for cost in (0.5, 0.0))
    times: list[torch.Tensor] = []
    costly.encoder.ponder.register_forward_hook(lambda tap, inputs, out: times.append(out))
    spent = classification_loss(costly, texts).smoothed - classification_loss(free, texts).smoothed
    expected = sum(time[row != 0].mean() for time, row in zip(times[0], ids, strict=True))
    assert spent.item() == pytest.approx(0.5 * expected.item(), rel=1e-4)


@pytest.mark.parametrize("batch", BATCHES)
def test_rdrop_without_dropout_is_the_plain_loss(batch):
    model = model_of()
    one, both = translation_loss(model, batch, 0.1), rdrop_loss(model, batch.doubled(), 0.1, 0, 5.0)
    assert both.tokens == one.tokens
    torch.testing.assert_close((both.smoothed, both.likelihood), (one.smoothed, one.likelihood))


def test_with_dropout_rdrop_has_a_divergence():
    model = model_of(dropout=0.3).train()
    losses = []
    for consistency in (0.0, 1.0, 2.0):
        torch.manual_seed(4)
        losses.append(rdrop_loss(model, BATCHES[0].doubled(), 0.1, 0, consistency).smoothed.item())
    assert losses[1] > losses[0] + 1e-3
    assert losses[2] - losses[1] == pytest.approx(losses[1] - losses[0], rel=1e-3)
