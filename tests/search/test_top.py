from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.search.top import BLOCK, WORTH_BLOCKS, top_k


def by_loop(x: np.ndarray, k: int) -> list[list[int]]:
    return [sorted(range(len(row)), key=lambda i: (-row[i], i))[:k] for row in x]


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    columns=st.sampled_from([1, 2, 7, 64, 500, 640, 1003]),
    k=st.integers(1, 6),
    levels=st.sampled_from([1, 2, 5, 50, 10**7]),
)
def test_the_largest_numbers_come_in_order_and_ties_by_index(seed, columns, k, levels):
    x = np.random.default_rng(seed).integers(0, levels, (4, columns)).astype(np.float32)
    values, indices = top_k(torch.from_numpy(x), k)
    expected = by_loop(x, k)
    assert indices.tolist() == expected
    assert values.tolist() == np.take_along_axis(x, np.array(expected), 1).tolist()


@pytest.mark.parametrize("columns", [5, 300, 1003])
def test_what_is_minus_infinity_fills_up(columns):
    x = torch.full((2, columns), -torch.inf)
    x[0, 3], x[0, 1], x[1, 4] = -1.0, -1.0, -2.0
    values, indices = top_k(x, 4)
    assert indices[0, :2].tolist() == [1, 3] and indices[1, 0] == 4
    assert values[0].tolist() == [-1, -1, -torch.inf, -torch.inf]
    assert all(len(set(row)) == 4 for row in indices.tolist())


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    columns=st.sampled_from([7, 64, 500, 1024, 1003]),
    width=st.integers(1, 4),
    k=st.integers(1, 8),
    levels=st.sampled_from([1, 2, 5, 50, 10**7]),
)
def test_sums_are_ranked_over_all_rows_of_a_sentence(seed, columns, width, k, levels):
    random = np.random.default_rng(seed)
    x = random.integers(0, levels, (12 * width, columns)).astype(np.float32)
    score = random.integers(-3, 0, (12, width)).astype(np.float64)
    score[0, 0] = -np.inf
    sums = (score.reshape(-1, 1) + x).reshape(12, -1)
    values, places = top_k(torch.from_numpy(x), k, torch.from_numpy(score))
    expected = by_loop(sums, k)
    possible = np.isfinite(np.take_along_axis(sums, np.array(expected), 1))
    assert values.tolist() == np.take_along_axis(sums, np.array(expected), 1).tolist()
    assert np.where(possible, places.numpy(), -1).tolist() == np.where(possible, expected, -1).tolist()


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    columns=st.sampled_from([2048, 2011]),
    k=st.integers(1, 7),
    levels=st.sampled_from([1, 3, 500, 10**7]),
)
def test_blocks_change_nothing(seed, columns, k, levels):
    random = np.random.default_rng(seed)
    x = random.integers(0, levels, (20, columns)).astype(np.float32)
    x[np.arange(5), -random.integers(1, 4, 5)] = levels  # the last block has its turn
    assert x.size >= WORTH_BLOCKS and columns // BLOCK >= 4 * k
    values, indices = top_k(torch.from_numpy(x), k)
    assert indices.tolist() == by_loop(x, k)
    assert values.tolist() == np.take_along_axis(x, indices.numpy(), 1).tolist()


def test_rows_do_not_have_to_be_contiguous():
    x = torch.randn(1003, 40).T
    assert torch.equal(top_k(x, 2)[1], x.topk(2).indices)
