"""Masks say what may be attended to, aligned to the bottom right."""

import pytest
import torch

from heedful.model.masks import causal, not_padding


@pytest.mark.parametrize(("queries", "keys"), [(2, 2), (5, 5), (1, 6), (3, 8), (64, 64)])
def test_a_query_sees_itself_and_what_came_before(queries, keys):
    keep = causal(queries, keys)
    assert keep.shape == (1, 1, queries, keys)
    past = keys - queries
    for i in range(queries):
        assert keep[0, 0, i].tolist() == [j <= past + i for j in range(keys)]


@pytest.mark.parametrize("pad", [0, 3])
def test_padding_is_hidden_from_every_query(pad):
    ids = torch.tensor([[5, 6, pad, pad], [7, pad, pad, pad], [5, 6, 7, 8]])
    assert not_padding(ids, pad).squeeze().tolist() == [[x != pad for x in row] for row in ids.tolist()]
    assert not_padding(ids, pad).shape == (3, 1, 1, 4)
