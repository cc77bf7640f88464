"""The plan of an epoch: every pair once, within the budget, a pure function, little padding."""

import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.data.bucketing import micro_batches, padding, plan_batches

LENGTHS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=200)


def sides(lengths: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    both = np.array(lengths, np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def realistic(n: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    target = np.clip(random.lognormal(3.0, 0.5, n), 1, 250).astype(np.int64)
    source = np.clip(target * random.lognormal(0, 0.2, n), 1, 250).astype(np.int64)
    return source, target


@settings(max_examples=200, deadline=None)
@given(LENGTHS, st.integers(1, 200), st.integers(0, 5), st.integers(0, 5))
def test_every_pair_once_within_the_budget(lengths: list[tuple[int, int]], budget: int, seed: int, epoch: int) -> None:
    source, target = sides(lengths)
    batches = plan_batches(source, target, budget, seed, epoch)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch)
        if len(batch) > 1:
            assert len(batch) * (source[batch].max() + 1) <= budget
            assert len(batch) * (target[batch].max() + 1) <= budget


@settings(max_examples=50, deadline=None)
@given(LENGTHS, st.integers(1, 200))
def test_the_plan_is_a_pure_function(lengths: list[tuple[int, int]], budget: int) -> None:
    source, target = sides(lengths)
    one, two = (plan_batches(source.copy(), target.copy(), budget, 3, 7) for _ in range(2))
    assert [batch.tolist() for batch in one] == [batch.tolist() for batch in two]
    small = plan_batches(source.astype(np.uint16), target.astype(np.int32), budget, 3, 7)
    assert [batch.tolist() for batch in one] == [batch.tolist() for batch in small]


def test_the_plan_does_not_depend_on_the_machine() -> None:
    """Resuming elsewhere relies on these very numbers."""
    source, target = np.array([3, 5, 4, 9, 3, 3]), np.array([4, 4, 6, 8, 4, 4])
    assert [batch.tolist() for batch in plan_batches(source, target, 20, 1, 0)] == [[0, 5, 1], [4], [2, 3]]


def test_epochs_and_seeds_differ_in_order_and_in_content() -> None:
    source, target = realistic(5000)
    plans = [plan_batches(source, target, 1000, seed, epoch) for seed, epoch in [(1, 0), (1, 1), (2, 0)]]
    contents = [{tuple(sorted(batch.tolist())) for batch in batches} for batches in plans]
    for a, b in [(0, 1), (0, 2), (1, 2)]:
        assert len(contents[a] & contents[b]) < 0.1 * len(contents[a])
        assert [len(x) for x in plans[a]] != [len(x) for x in plans[b]]


def test_batches_come_in_random_order_of_length() -> None:
    source, target = realistic(5000)
    longest = [int(target[batch].max()) for batch in plan_batches(source, target, 1000, 1, 0)]
    assert abs(np.corrcoef(longest, range(len(longest)))[0, 1]) < 0.3


@pytest.mark.parametrize("budget", [2048, 4096, 25_000])
def test_batches_have_little_padding(budget: int) -> None:
    source, target = realistic(200_000)
    batches = plan_batches(source, target, budget, 1, 0)
    assert padding(batches, source) < 0.05
    assert padding(batches, target) < 0.05
    full = sum(max(len(b) * (source[b].max() + 1), len(b) * (target[b].max() + 1)) for b in batches)
    assert full > 0.97 * budget * len(batches)


def test_padding_is_counted_with_special_tokens() -> None:
    assert padding([np.array([0, 1])], np.array([1, 3])) == 1 - 6 / 8
    assert padding([], np.zeros(0, np.int64)) == 0


def test_a_large_corpus_is_planned_quickly() -> None:
    source, target = realistic(500_000)
    start = time.process_time()
    plan_batches(source, target, 4096, 1, 0)
    assert time.process_time() - start < 3


def test_planning_takes_few_bytes_a_pair() -> None:
    source, target = (lengths.astype(np.int32) for lengths in realistic(100_000))
    tracemalloc.start()
    plan_batches(source, target, 4096, 1, 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 48 * len(source)


@given(st.integers(0, 50), st.integers(1, 12))
def test_micro_batches_make_up_the_batch(size: int, count: int) -> None:
    batch = np.random.default_rng(size).permutation(size)
    cut = micro_batches(batch, count)
    assert len(cut) == count
    assert np.concatenate(cut).tolist() == batch.tolist()
    assert max(map(len, cut)) - min(map(len, cut)) <= 1
    assert [piece.tolist() for piece in micro_batches(batch.copy(), count)] == [piece.tolist() for piece in cut]
