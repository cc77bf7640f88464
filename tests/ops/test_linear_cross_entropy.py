"""The fused output layer and loss against three lines of `torch`, and against `torch`'s own cross-entropy."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.ops import cross_entropy
from heedful.ops.cross_entropy import linear_cross_entropy, linear_cross_entropy_plain, linear_rdrop_cross_entropy

VOCABULARY = 23
CHUNKS = [1, 20 * VOCABULARY, 37 * VOCABULARY, 1 << 21]  # 16 rows at once (the least), 20, 37, all


def example(
    rows: int = 37, bias: bool = True, dtype: torch.dtype = torch.float32
) -> tuple[list[Tensor | None], Tensor]:
    """Hidden states (rows, 8), weight (V, 8) and bias (V), all with gradients, and labels."""
    generator = torch.Generator().manual_seed(rows)
    shapes = [(rows, 8), (VOCABULARY, 8), (VOCABULARY,)]
    tensors = [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in shapes]
    return [*tensors[:2], tensors[2] if bias else None], torch.randint(VOCABULARY, (rows,), generator=generator)


def values_and_gradients(body, tensors, labels, smoothing, upstream=1.0):
    smoothed, likelihood = body(*tensors, labels, smoothing)
    inputs = [x for x in tensors if x is not None]
    return [smoothed, likelihood, *torch.autograd.grad(smoothed, inputs, torch.tensor(upstream))]


@pytest.fixture(params=CHUNKS)
def chunk(request, monkeypatch):
    monkeypatch.setattr(cross_entropy, "CHUNK_LOGITS_CPU", request.param)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [2, 37])
def test_fast_equals_plain_in_values_and_gradients(chunk, rows, bias, smoothing):
    tensors, labels = example(rows, bias)
    fast = values_and_gradients(linear_cross_entropy, tensors, labels, smoothing)
    plain = values_and_gradients(linear_cross_entropy_plain, tensors, labels, smoothing)
    torch.testing.assert_close(fast, plain, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("upstream", [-3.0, 0.01])
def test_the_gradient_that_arrives_is_multiplied_in(chunk, upstream):
    tensors, labels = example()
    fast = values_and_gradients(linear_cross_entropy, tensors, labels, 0.1, upstream)
    plain = values_and_gradients(linear_cross_entropy_plain, tensors, labels, 0.1, upstream)
    torch.testing.assert_close(fast, plain, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("body", [linear_cross_entropy, linear_cross_entropy_plain])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_it_is_the_cross_entropy_of_torch(chunk, body, smoothing):
    tensors, labels = example()
    hidden, weight, bias = tensors
    logits = F.linear(hidden, weight, bias)
    expected = F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum")
    smoothed, likelihood = body(*tensors, labels, smoothing)
    torch.testing.assert_close(smoothed, expected)
    torch.testing.assert_close(likelihood, F.cross_entropy(logits, labels, reduction="sum"))
    assert not likelihood.requires_grad


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("without", [torch.no_grad, torch.inference_mode])
def test_values_are_the_same_without_gradients(chunk, smoothing, without):
    tensors, labels = example()
    expected = linear_cross_entropy(*tensors, labels, smoothing)
    with without():
        values = linear_cross_entropy(*tensors, labels, smoothing)
    torch.testing.assert_close(values, tuple(x.detach() for x in expected))
    assert not any(x.requires_grad for x in values)


def test_sums_of_parts_are_the_sum_of_the_whole():
    tensors, labels = example()
    hidden, weight, bias = tensors
    whole = linear_cross_entropy(*tensors, labels, 0.1)
    parts = [linear_cross_entropy(hidden[rows], weight, bias, labels[rows], 0.1) for rows in (slice(9), slice(9, None))]
    torch.testing.assert_close([a + b for a, b in zip(*parts, strict=True)], list(whole))


def test_a_weight_used_twice_gets_both_gradients():
    (_, weight, _), labels = example()
    ids = labels.flip(0)
    gradients = []
    for body in (linear_cross_entropy, linear_cross_entropy_plain):
        smoothed, _ = body(F.embedding(ids, weight), weight, None, labels, 0.1)
        gradients.append(torch.autograd.grad(smoothed, weight)[0])
    torch.testing.assert_close(*gradients, atol=1e-5, rtol=1e-5)


def test_no_rows_cost_nothing():
    tensors, labels = example(0)
    smoothed, likelihood, *gradients = values_and_gradients(linear_cross_entropy, tensors, labels, 0.1)
    assert smoothed == likelihood == 0
    assert all((gradient == 0).all() for gradient in gradients)


def test_enormous_logits_stay_finite(chunk):
    tensors, labels = example()
    tensors[0] = (tensors[0].detach() * 1e4).requires_grad_()
    fast = values_and_gradients(linear_cross_entropy, tensors, labels, 0.1)
    assert all(x.isfinite().all() for x in fast)
    plain = values_and_gradients(linear_cross_entropy_plain, tensors, labels, 0.1)
    torch.testing.assert_close(fast, plain, atol=1e-4, rtol=1e-4)


def test_the_sum_of_many_rows_keeps_its_digits(monkeypatch):
    """Sums over the tokens of a large batch are kept in more digits than their parts."""
    monkeypatch.setattr(cross_entropy, "CHUNK_LOGITS_CPU", 1)
    rows = 20_000
    with torch.no_grad():
        likelihood = linear_cross_entropy(torch.zeros(rows, 2), torch.zeros(3, 2), None, torch.zeros(rows).long())[1]
    assert likelihood.item() == pytest.approx(rows * torch.tensor(3.0, dtype=torch.float64).log().item(), rel=2e-7)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_bfloat16_is_right_to_its_precision(chunk, smoothing):
    tensors, labels = example(dtype=torch.bfloat16)
    exact = [x.detach().double().requires_grad_() for x in tensors]
    fast = values_and_gradients(linear_cross_entropy, tensors, labels, smoothing)
    right = values_and_gradients(linear_cross_entropy_plain, exact, labels, smoothing)
    assert [x.dtype for x in fast] == [torch.float32] * 2 + [torch.bfloat16] * 3
    for actual, reference in zip(fast, right, strict=True):
        assert (actual.double() - reference).norm() < 2**-7 * reference.norm()


@pytest.mark.parametrize("hidden", [torch.float32, torch.bfloat16])
def test_autocast_leaves_gradients_in_float32(hidden):
    tensors, labels = example()
    with torch.autocast("cpu", torch.bfloat16):
        fast = values_and_gradients(lambda h, *rest: linear_cross_entropy(h.to(hidden), *rest), tensors, labels, 0.1)
    right = values_and_gradients(linear_cross_entropy_plain, tensors, labels, 0.1)
    for actual, reference in zip(fast, right, strict=True):
        assert actual.dtype == torch.float32
        assert (actual - reference).norm() < 2**-6 * reference.norm()


def sampled(samples, tensors, labels, smoothing, seed):
    torch.manual_seed(seed)
    smoothed, likelihood = linear_cross_entropy(*tensors, labels, smoothing, samples)
    return [smoothed, likelihood, *torch.autograd.grad(smoothed, [x for x in tensors if x is not None])]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bias", [True, False])
def test_sampling_all_tokens_is_exact(chunk, bias, smoothing):
    tensors, labels = example(9, bias)
    exact = values_and_gradients(linear_cross_entropy_plain, tensors, labels, smoothing)
    for samples in (VOCABULARY - 1, VOCABULARY, VOCABULARY + 1):
        torch.testing.assert_close(sampled(samples, tensors, labels, smoothing, 0), exact, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("bias", [True, False])
def test_samples_represent_all_other_tokens(bias):
    """Over many draws: the nearer to the exact loss and gradient, the more tokens are drawn."""
    tensors, labels = example(9, bias)
    tensors[0] = (tensors[0].detach() / 3).requires_grad_()  # no few tokens that have it all
    exact = values_and_gradients(linear_cross_entropy_plain, tensors, labels, 0.1)
    errors = []
    for samples in (2, 5, 12):
        draws = [sampled(samples, tensors, labels, 0.1, seed) for seed in range(200)]
        means = [torch.stack(item).mean(0) for item in zip(*draws, strict=True)]
        errors.append([((mean - right).norm() / right.norm()).item() for mean, right in zip(means, exact, strict=True)])
    assert all(few > some > many for few, some, many in zip(*errors, strict=True))
    assert max(errors[-1]) < 0.1


def test_samples_are_drawn_alike_and_never_twice():
    labels = torch.tensor([3, 3, 7])
    counts = torch.zeros(VOCABULARY)
    for seed in range(2000):
        torch.manual_seed(seed)
        rows, stand_for = cross_entropy.sample_softmax_tokens(labels, VOCABULARY, 5)
        assert rows[:2].tolist() == [3, 7]
        assert len(set(rows.tolist())) == len(rows) == 7
        torch.testing.assert_close(stand_for.sum(), torch.tensor(float(VOCABULARY)))
        counts[rows] += 1
    assert counts[[3, 7]].tolist() == [2000, 2000]
    expected = 2000 * 5 / 21
    others = torch.cat((counts[:3], counts[4:7], counts[8:]))
    assert ((others - expected).abs() < 5 * (expected * (1 - 5 / 21)) ** 0.5).all()


def test_the_same_seed_draws_the_same_samples():
    tensors, labels = example(9)
    first, again, other = (sampled(4, tensors, labels, 0.1, seed) for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])


def test_samples_in_autocast_leave_gradients_in_float32():
    tensors, labels = example(9)
    with torch.autocast("cpu", torch.bfloat16):
        estimate = sampled(5, tensors, labels, 0.1, 0)
    for actual, right in zip(estimate, sampled(5, tensors, labels, 0.1, 0), strict=True):
        assert actual.dtype == torch.float32
        assert (actual - right).norm() < 2**-6 * right.norm()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_rdrop_is_the_mean_loss_and_the_divergence(bias, smoothing):
    tensors, labels = example(38, bias)
    labels = torch.cat((labels[:19], labels[:19]))
    result = values_and_gradients(
        lambda *inputs: linear_rdrop_cross_entropy(*inputs, 0, 3.0), tensors, labels, smoothing
    )
    logits = F.linear(*tensors)
    p, q = logits.log_softmax(-1).chunk(2)
    apart = F.kl_div(p, q, log_target=True, reduction="sum") + F.kl_div(q, p, log_target=True, reduction="sum")
    both = F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum")
    expected = both / 2 + 3 / 4 * apart
    inputs = [x for x in tensors if x is not None]
    likelihood = F.cross_entropy(logits, labels, reduction="sum") / 2
    torch.testing.assert_close(result, [expected, likelihood, *torch.autograd.grad(expected, inputs)])


@pytest.mark.parametrize("samples", [0, 5, VOCABULARY])
def test_rdrop_of_equal_predictions_is_the_plain_loss(samples):
    tensors, labels = example()
    torch.manual_seed(7)
    expected = values_and_gradients(lambda *inputs: linear_cross_entropy(*inputs, samples), tensors, labels, 0.1)
    hidden, *rest = tensors
    torch.manual_seed(7)
    result = linear_rdrop_cross_entropy(torch.cat((hidden, hidden)), *rest, labels.repeat(2), 0.1, samples, 5.0)
    gradients = torch.autograd.grad(result[0], tensors)
    torch.testing.assert_close([*result, *gradients], expected, atol=1e-4, rtol=1e-4)
