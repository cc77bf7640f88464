"""The NumPy sampler draws what the torch sampler draws."""

import numpy as np
import pytest
import torch

from heedful.search import SearchOptions
from heedful.search.sample import draw
from heedful.search.token_sampler import best_tokens, draw_token, penalize_repeated

OPTIONS = [
    {},
    {"temperature": 0},
    {"temperature": 0.7},
    {"top_k": 1},
    {"top_k": 7, "temperature": 2.0},
    {"top_p": 0.6},
    {"min_p": 0.1, "top_p": 0.9},
    {"top_k": 20, "top_p": 0.5, "min_p": 0.02},
]


@pytest.mark.parametrize("settings", OPTIONS, ids=str)
def test_tokens_are_those_of_torch(settings: dict[str, float]) -> None:
    generator = np.random.default_rng(1)
    options = SearchOptions.of(SearchOptions(), **settings)
    scores = torch.from_numpy(generator.normal(0, 2, (300, 53)).astype(np.float32)).log_softmax(1)
    scores[:, 3] = -torch.inf  # forbidden
    numbers = generator.random((300, 1))
    expected = draw(scores, torch.from_numpy(numbers), options)[:, 0].tolist()
    drawn = [draw_token(row, number, options) for row, number in zip(scores.numpy(), numbers[:, 0], strict=True)]
    assert sum(ours != theirs for ours, theirs in zip(drawn, expected, strict=True)) <= 1  # rounding at an edge
    assert 3 not in drawn


def test_best_tokens_are_in_order_and_ties_go_to_the_lowest() -> None:
    scores = np.array([0.5, 2.0, 1.0, 2.0, 1.0, -np.inf], np.float32)
    assert best_tokens(scores, 3).tolist() == [1, 3, 2]
    assert best_tokens(scores, 6).tolist() == [1, 3, 2, 4, 0, 5]


def test_each_repeated_token_is_penalized_once() -> None:
    scores = np.array([-1.0, -2.0, -3.0], np.float32)
    penalize_repeated(scores, [1, 1, 2], 1.5)
    assert scores.tolist() == [-1.0, -3.0, -4.5]
