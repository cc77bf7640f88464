"""The sparsely gated mixture of experts against loops over tokens and experts, as the paper writes it."""

import math

import numpy as np
import pytest
import torch

from heedful.config import ModelConfig
from heedful.data.batch import Batch
from heedful.model.feed_forward import MixtureOfExperts, selection_probability, squared_variation
from heedful.model.transformer import build_model
from heedful.training.losses import translation_loss

from .samples import sentences, small, stir


def layer(**changes) -> MixtureOfExperts:
    torch.manual_seed(0)
    mixture = stir(MixtureOfExperts(small(**{"experts": 5, "experts_per_token": 2} | changes)))
    with torch.no_grad():
        mixture.gating.copy_(torch.randn(5, 16))
        mixture.noise.copy_(torch.randn(5, 16) * 0.3)
    return mixture.requires_grad_(False)


@pytest.mark.parametrize("chosen", [1, 2, 5])
def test_a_token_is_the_weighted_sum_of_its_best_experts(chosen):
    mixture = layer(experts_per_token=chosen)
    x = torch.randn(2, 7, 16, dtype=torch.float64)
    out = mixture(x)
    for place in np.ndindex(2, 7):
        token = x[place]
        scores = (mixture.gating @ token).numpy()
        best = np.argsort(-scores)[:chosen]
        weights = np.exp(scores[best]) / np.exp(scores[best]).sum()
        expected = sum(w * mixture.experts[e](token.view(1, 1, -1))[0, 0] for w, e in zip(weights, best, strict=True))
        torch.testing.assert_close(out[place], expected)


def test_the_load_is_the_probability_to_be_among_the_best():
    """P(x, i) with Φ by `math.erf`, the k-th largest of the others by sorting."""
    generator = torch.Generator().manual_seed(2)
    clean, noisy, deviation = (torch.randn(3, 6, generator=generator, dtype=torch.float64) for _ in range(3))
    deviation = deviation.abs() + 0.1
    result = selection_probability(clean, noisy, deviation, 2)
    for row, expert in np.ndindex(3, 6):
        others = sorted((float(noisy[row, e]) for e in range(6) if e != expert), reverse=True)
        z = (float(clean[row, expert]) - others[1]) / float(deviation[row, expert])
        assert float(result[row, expert]) == pytest.approx(0.5 * (1 + math.erf(z / math.sqrt(2))))


def test_the_load_is_what_redrawn_noise_selects():
    """The probability is the frequency with which an expert is selected when its noise alone is drawn anew."""
    torch.manual_seed(0)
    clean, deviation = torch.tensor([0.3, -0.2, 0.5, 0.1]), torch.tensor([0.5, 1.0, 0.7, 0.4])
    noisy = clean + torch.randn(4) * deviation
    result = selection_probability(clean[None], noisy[None], deviation[None], 2)[0]
    for expert in range(4):
        trials = noisy.repeat(20_000, 1)
        trials[:, expert] = clean[expert] + torch.randn(20_000) * deviation[expert]
        selected = (trials.topk(2, -1).indices == expert).any(-1).float().mean()
        assert abs(float(selected - result[expert])) < 0.02


def test_the_load_balancing_loss_counts_real_tokens_only():
    """CV² of importance and load, of each layer, with sums over tokens that are not padding."""
    source, target = sentences([7, 3, 5]), sentences([4, 6, 2], seed=1, start=2)
    lengths = (source != 0).sum(1), (target != 0).sum(1) - 1
    batch = Batch(source, target, *lengths, int(lengths[1].sum()))
    losses = {}
    for weight in (0.0, 0.5):
        torch.manual_seed(3)
        model = build_model(small(experts=4, dropout=0.0, load_balance=weight)).double()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name.endswith(("gating", "noise")):
                    parameter.normal_(0, 0.5)
        heard: list[torch.Tensor] = []
        for mixture in (module for module in model.modules() if isinstance(module, MixtureOfExperts)):
            for tap in (mixture.gates, mixture.load):
                tap.register_forward_hook(lambda tap, inputs, out, heard=heard: heard.append(out))
        torch.manual_seed(4)  # of the noise
        losses[weight] = translation_loss(model, batch)
    expected = 0.0
    masks = [source != 0] * 4 + [batch.labels != 0] * 4  # load, then gates, of two layers on each side
    for out, mask in zip(heard, masks, strict=True):
        totals = out[mask].sum(0).detach().numpy()
        expected += totals.var() / totals.mean() ** 2
    charged = (losses[0.5].smoothed - losses[0.0].smoothed).item()
    assert charged == pytest.approx(0.5 * batch.tokens * expected, rel=1e-5)
    assert float(losses[0.5].likelihood) == pytest.approx(float(losses[0.0].likelihood))
    share, layers = losses[0.5].expert_use.tolist()
    assert layers == 4 and 0.25 <= share / layers <= 0.5


def test_equal_totals_cost_nothing():
    assert squared_variation(torch.full((4,), 3.0)) == 0
    assert float(squared_variation(torch.tensor([0.0, 0.0, 4.0, 0.0]))) == pytest.approx(3.0)


def test_more_experts_per_token_than_experts_are_refused():
    with pytest.raises(ValueError, match="more than experts"):
        ModelConfig(experts=2, experts_per_token=3)
