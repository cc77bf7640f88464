from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from search_toys import EOS, Conditional, Toy, batch
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from heedful.search import SearchOptions
from heedful.search.beam import beam_search
from heedful.search.sample import draw, keep_min_p, keep_top_p, sample, uniform_numbers

SENTENCES = [(5, 4), (3,), (4, 4, 5, 3), (5, 4, 3), (3, 3)]


def run(toy, sentences, **options):
    return sample(toy, *batch(sentences), SearchOptions(**options))


def table(rows=8, columns=40, sharp=2.0, seed=1):
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)).mul(sharp).log_softmax(1)


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def filtered_by_loop(row: np.ndarray, temperature: float, k: int, p: float, least: float) -> np.ndarray:
    """The distribution that is sampled from, in plain loops."""
    scores = row.astype(np.float64) / temperature
    order = sorted(range(len(row)), key=lambda i: (-scores[i], i))
    for i in order[k or len(row) :]:
        scores[i] = -np.inf
    probs, held = softmax(scores), 0.0
    for i in order:
        if held >= p:
            scores[i] = -np.inf
        held += probs[i]
    probs = softmax(scores)
    for i in order:
        if probs[i] < least * probs.max():
            scores[i] = -np.inf
    return softmax(scores)


def unlikely(counts: np.ndarray, probs: np.ndarray) -> bool:
    """Pearson's chi-square, six standard deviations of its normal approximation away; or an impossible event."""
    possible = probs > 0
    if counts[~possible].any():
        return True
    expected = probs[possible] * counts.sum()
    statistic = ((counts[possible] - expected) ** 2 / expected).sum()
    freedom = max(int(possible.sum()) - 1, 1)
    return statistic > freedom + 6 * math.sqrt(2 * freedom)


OFF = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
SETTINGS = [
    {},
    {"temperature": 0.5},
    {"temperature": 1.7},
    {"top_k": 5},
    {"top_p": 0.7},
    {"min_p": 0.2},
    {"temperature": 1.3, "top_k": 12, "top_p": 0.9, "min_p": 0.05},
    {"temperature": 0.8, "top_p": 0.8, "min_p": 0.1},
]


@pytest.mark.parametrize("options", SETTINGS)
def test_tokens_are_drawn_from_the_filtered_distribution(options):
    log_probs = table(columns=12)
    numbers = torch.rand(len(log_probs), 20_000, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    drawn = draw(log_probs, numbers, SearchOptions(**options)).numpy()
    for row, ids in zip(log_probs.numpy(), drawn, strict=True):
        probs = filtered_by_loop(row, *(options.get(name, off) for name, off in OFF.items()))
        assert not unlikely(np.bincount(ids, minlength=12), probs)
        assert unlikely(np.bincount(ids, minlength=12), np.full(12, 1 / 12))  # the test can fail


@pytest.mark.parametrize("options", SETTINGS)
def test_whole_samples_follow_the_model(options):
    """First and second token of many samples of one sentence, drawn through the model."""
    toy, source = Toy(7, seed=2, sharp=1.0), (4, 5)
    (result,) = run(toy, [source], n_best=1000, max_length=2, **options)
    model = Conditional(toy, source)
    inputs = [options.get(name, off) for name, off in OFF.items()]
    output = [(*h.ids, EOS)[:2] for h in result]
    counts = np.bincount([ids[0] for ids in output], minlength=7)
    assert not unlikely(counts, filtered_by_loop(masked(model.log_probs(())), *inputs))
    first = int(np.argmax(np.where(np.arange(7) == EOS, 0, counts)))
    after = np.bincount([ids[1] for ids in output if ids[0] == first], minlength=7)
    assert not unlikely(after, filtered_by_loop(masked(model.log_probs((first,))), *inputs))


def masked(row: np.ndarray) -> np.ndarray:
    return np.where(np.arange(len(row)) < EOS, -np.inf, row)


@pytest.mark.parametrize("columns", [40, 2000])
@pytest.mark.parametrize("p", [0.05, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("sharp", [0.1, 3.0])
def test_top_p_is_that_of_transformers_and_of_a_loop(columns, p, sharp):
    scores = table(columns=columns, sharp=sharp)
    exact = scores.double()  # in float32 transformers' sum may round across p, on some CPUs
    ours, reference = keep_top_p(exact, p), TopPLogitsWarper(p)(None, exact)
    assert torch.equal(ours.sort().values, reference.sort().values)  # of equal scores their sort keeps any
    actual = keep_top_p(scores, p)
    for row, remaining in zip(scores.numpy(), (actual > -torch.inf).numpy(), strict=True):
        assert remaining.tolist() == (filtered_by_loop(row, 1.0, 0, p, 0.0) > 0).tolist()


@pytest.mark.parametrize("share", [0.01, 0.3, 1.0])
def test_min_p_is_that_of_transformers_and_of_a_loop(share):
    scores = table()
    actual = keep_min_p(scores, share)
    assert torch.equal(actual, MinPLogitsWarper(share)(None, scores))
    for row, remaining in zip(scores.numpy(), (actual > -torch.inf).numpy(), strict=True):
        assert remaining.tolist() == (filtered_by_loop(row, 1.0, 0, 1.0, share) > 0).tolist()


def test_all_filters_together_leave_what_transformers_leaves():
    log_probs = table(rows=4, columns=300)
    scores = TemperatureLogitsWarper(1.4)(None, log_probs)
    for warper in (TopKLogitsWarper(30), TopPLogitsWarper(0.8), MinPLogitsWarper(0.1)):
        scores = warper(None, scores)
    even = torch.linspace(0, 1, 100_001, dtype=torch.float64)[:-1].expand(4, -1).contiguous()
    drawn = draw(log_probs, even, SearchOptions(temperature=1.4, top_k=30, top_p=0.8, min_p=0.1))
    for ids, row in zip(drawn, scores, strict=True):
        share = torch.bincount(ids, minlength=300) / len(even[0])
        assert torch.allclose(share, row.softmax(0), atol=1e-4)


@pytest.mark.parametrize(
    "options", [{"top_k": 1}, {"temperature": 0.0}, {"top_p": 1e-9}, {"temperature": 1e-60}, {"temperature": 2e-6}]
)
def test_without_choice_sampling_is_greedy(options):
    toy = Toy(12, seed=6)
    greedy = beam_search(toy, *batch(SENTENCES), SearchOptions(beam=1, max_extra=9))
    assert run(toy, SENTENCES, max_extra=9, **options) == greedy


def test_ties_at_top_k_go_to_the_lowest_ids():
    flat = torch.full((1, 700), -math.log(700))
    numbers = torch.linspace(0, 0.999, 50, dtype=torch.float64).expand(1, -1).contiguous()
    assert set(draw(flat, numbers, SearchOptions(top_k=3))[0].tolist()) == {0, 1, 2}


@pytest.mark.parametrize("number", [0.0, 1 - 2**-53])
def test_the_extreme_random_numbers_draw_no_impossible_token(number):
    log_probs = table(columns=50)
    log_probs[:, [0, 1, 48, 49]] = -torch.inf
    ids = draw(log_probs, torch.full((8, 1), number, dtype=torch.float64), SearchOptions())
    assert ids.tolist() == [[2 if number == 0 else 47]] * 8


def test_the_same_seed_gives_the_same_and_another_seed_another_text():
    toy = Toy(20, seed=1, eos=-2.0)
    first, again, other = (run(toy, SENTENCES, n_best=4, max_extra=9, seed=seed) for seed in (5, 5, 6))
    assert first == again
    assert all(actual != reference for actual, reference in zip(first, other, strict=True))


def test_samples_of_a_sentence_differ_and_more_samples_begin_with_the_same():
    toy = Toy(20, seed=1, eos=-2.0)
    few, many = (run(toy, SENTENCES, n_best=n, max_extra=9) for n in (2, 6))
    assert [item[:2] for item in many] == few
    assert all(len({h.ids for h in value}) == 6 for value in many)


def test_random_numbers_are_uniform_and_depend_on_source_seed_and_number():
    source, lengths = batch([(3, 4), (3, 4, 5), (3, 4)])
    dice = uniform_numbers(source, lengths, 3, 4000, seed=1)
    assert dice.shape == (3, 3, 4000) and dice.dtype == torch.float64
    assert torch.equal(dice[0], dice[2]) and not torch.equal(dice[0], dice[1])
    assert len({float(row[0]) for row in dice[:2].flatten(0, 1)}) == 6
    assert torch.equal(uniform_numbers(source, lengths, 2, 50, seed=1), dice[:, :2, :50])
    assert not torch.equal(uniform_numbers(source, lengths, 3, 4000, seed=2), dice)
    for row in dice[0]:
        assert row.min() >= 0 and row.max() < 1
        assert not unlikely(np.histogram(row.numpy(), 20, (0, 1))[0], np.full(20, 1 / 20))


sentence = st.lists(st.integers(3, 9), min_size=1, max_size=6).map(tuple)


@settings(max_examples=15, deadline=None)
@given(
    sentences=st.lists(sentence, min_size=1, max_size=8),
    seed=st.integers(0, 99),
    n=st.integers(1, 4),
    order=st.randoms(use_true_random=False),
)
def test_a_sentence_gives_the_same_alone_and_in_any_batch(
    sentences: list[tuple[int, ...]], seed: int, n: int, order: random.Random
):
    toy = Toy(10, seed=seed, eos=0.5)
    options = {"n_best": n, "max_extra": 5, "top_p": 0.9, "seed": seed}
    alone = {item: run(toy, [item], **options)[0] for item in sentences}
    shuffled = order.sample(sentences, len(sentences))
    assert run(toy, shuffled, **options) == [alone[value] for value in shuffled]


def test_a_sample_carries_the_numbers_of_the_model_before_any_filter():
    toy = Toy(8, seed=1)
    result = run(toy, SENTENCES, n_best=5, max_extra=4, temperature=0.7, top_k=4)
    assert {h.finished for item in result for h in item} == {True, False}
    for source, hypotheses in zip(SENTENCES, result, strict=True):
        model = Conditional(toy, source)
        for h in hypotheses:
            output = (*h.ids, EOS) if h.finished else h.ids
            assert h.finished or len(h.ids) == len(source) + 4
            assert h.token_log_probs == tuple(model.log_probs(output[:i])[v] for i, v in enumerate(output))
            assert h.score == pytest.approx(h.log_prob / ((5 + len(output)) / 6) ** 0.6)


def test_sentences_whose_samples_have_ended_leave_the_batch():
    toy = Toy(10, seed=4, eos=-1.0)
    run(toy, SENTENCES, n_best=3, max_extra=9)
    assert toy.rows[:2] == [5, 15] and toy.rows[-1] < 15
    assert run(toy, [], n_best=2) == []
