"""Dropout drops at the right rate, independently, and the same in both directions.

Random draws are held to bounds of five standard deviations under fixed seeds.
"""

import math

import pytest
import torch

from heedful.ops.dropout import dropout, random_keep

RATES = [0.01, 0.1, 0.3, 0.5, 0.75, 0.9, 0.99]
COUNT = 1 << 20


def drops(rate: float, count: int = COUNT, seed: int = 0) -> torch.Tensor:
    torch.manual_seed(seed)
    return ~random_keep(torch.Size([count]), rate)


def five_sigma(rate: float, count: int) -> float:
    return 5 * math.sqrt(rate * (1 - rate) / count)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_rate_is_right(rate, seed):
    assert abs(drops(rate, seed=seed).double().mean() - rate) < five_sigma(rate, COUNT) + 2**-17


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.9])
def test_every_place_in_a_random_word_has_the_rate(rate):
    """A 64-bit draw without a lower bound never sets its top bit, so every fourth element would drop too seldom."""
    places = drops(rate).view(-1, 4).double().mean(0)
    assert (places - rate).abs().max() < five_sigma(rate, COUNT // 4) + 2**-17


@pytest.mark.parametrize("bit", range(16))
def test_every_bit_of_the_draw_counts(bit):
    """A rate of 2^-k is the chance that the k highest bits are all zero: each further bit must halve it."""
    rate, count = 2.0 ** -(bit + 1), 1 << 21
    places = drops(rate, count, seed=bit).view(-1, 4).double().mean(0)
    assert (places - rate).abs().max() < five_sigma(rate, count // 4)


@pytest.mark.parametrize("lag", range(1, 9))
@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_neighbours_are_independent(rate, lag):
    drop = drops(rate).double() - rate
    correlation = (drop[lag:] * drop[:-lag]).mean() / (rate * (1 - rate))
    assert abs(correlation) < 5 / math.sqrt(COUNT - lag)


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_the_sixteen_patterns_of_four_neighbours_are_as_frequent_as_chance_has_it(rate):
    patterns = (drops(rate).view(-1, 4) * torch.tensor([1, 2, 4, 8])).sum(1).bincount(minlength=16).double()
    dropped = torch.tensor([bin(p).count("1") for p in range(16)])
    expected = rate**dropped * (1 - rate) ** (4 - dropped) * (COUNT // 4)
    chi_square = ((patterns - expected) ** 2 / expected).sum()
    assert chi_square < 44.3  # 15 degrees of freedom, one in ten thousand


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_calls_are_independent(rate):
    torch.manual_seed(4)
    first, second = ((~random_keep(torch.Size([COUNT]), rate)).double() - rate for _ in range(2))
    assert abs((first * second).mean() / (rate * (1 - rate))) < 5 / math.sqrt(COUNT)


@pytest.mark.parametrize("rate", RATES)
def test_scaling_keeps_the_mean(rate):
    torch.manual_seed(5)
    out = dropout(torch.full((COUNT,), 3.0), rate, training=True).double()
    assert abs(out.mean() / 3 - 1) < five_sigma(rate, COUNT) / (1 - rate) + 2**-16 / (1 - rate)
    torch.testing.assert_close(out[out != 0], torch.full_like(out[out != 0], 3 / (1 - rate)))


@pytest.mark.parametrize("shape", [(), (1,), (2,), (3,), (5,), (7, 3), (2, 3, 5), (1, 129), (0, 4)])
def test_any_shape_is_dropped_whole(shape):
    torch.manual_seed(6)
    results = torch.stack([dropout(torch.ones(shape), 0.5, training=True) for _ in range(200)])
    assert results.shape[1:] == shape
    assert set(results.unique().tolist()) <= {0.0, 2.0}
    mean = results.mean(0)
    assert ((mean > 0.4) & (mean < 1.6)).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(33,), (5, 7), (4, 3, 9)])
def test_the_gradient_is_dropped_where_the_value_was(shape, dtype):
    torch.manual_seed(7)
    x = torch.rand(shape, dtype=dtype).add(1).requires_grad_()
    out = dropout(x, 0.4, training=True)
    upstream = torch.randn(shape, dtype=dtype)
    (gradient,) = torch.autograd.grad(out, x, upstream)
    assert out.dtype == gradient.dtype == dtype
    torch.testing.assert_close(gradient, torch.where(out == 0, 0, upstream / 0.6).to(dtype))


def test_transposed_tensors_keep_their_values():
    torch.manual_seed(8)
    x = torch.randn(6, 50).t().requires_grad_()
    out = dropout(x, 0.5, training=True)
    out.sum().backward()
    assert torch.equal(out, torch.where(out == 0, 0, 2 * x))
    assert torch.equal(x.grad, torch.where(out == 0, 0.0, 2.0))


def test_the_input_is_left_alone():
    x = torch.ones(1000)
    dropout(x, 0.5, training=True)
    assert torch.equal(x, torch.ones(1000))


@pytest.mark.parametrize(("rate", "training"), [(0.0, True), (0.5, False), (0.0, False)])
def test_without_rate_or_training_it_is_the_identity_and_draws_nothing(rate, training):
    x, before = torch.randn(3, 5), torch.get_rng_state()
    assert dropout(x, rate, training) is x
    assert torch.equal(torch.get_rng_state(), before)


def test_the_seed_decides_everything():
    same, again, other = drops(0.3, 1001, seed=9), drops(0.3, 1001, seed=9), drops(0.3, 1001, seed=10)
    assert torch.equal(same, again)
    assert not torch.equal(same, other)


@pytest.mark.parametrize("rate", [1 - 2**-15, 1 - 2**-17, 1 - 2**-20])
def test_a_rate_next_to_one_drops_nearly_everything(rate):
    assert drops(rate, 10_000).double().mean() > 0.99


@pytest.mark.parametrize("rate", [2**-18, 1e-9])
def test_a_rate_next_to_zero_drops_nothing(rate):
    """Not even one element in 65,536, which two million draws would show."""
    assert not drops(rate, 1 << 21).any()
