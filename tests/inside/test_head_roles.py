"""Heads whose work is known by construction get the right names and numbers."""

from __future__ import annotations

import math

import pytest
import torch

from heedful.inside.head_roles import KINDS, head_roles


def looking(place, queries=9, keys=9, weight=0.9):
    """Every query gives `weight` to one key, and the rest evenly to the others."""
    weights = torch.full((queries, keys), (1 - weight) / (keys - 1))
    for query in range(queries):
        weights[query, min(max(place(query), 0), keys - 1)] = weight
    return weights / weights.sum(-1, keepdim=True)


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("previous", lambda q: q - 1),
        ("same", lambda q: q),
        ("next", lambda q: q + 1),
        ("first", lambda q: 0),
        ("end", lambda q: 8),
        ("selective", lambda q: (q * 5 + 3) % 9),
    ],
)
def test_places_give_a_head_its_name(kind, place):
    (result,) = head_roles(looking(place)[None], "self")
    assert result.kind == kind
    assert result.kind in KINDS
    if kind in result.shares:
        assert result.shares[kind] == pytest.approx(0.9)
        assert max(result.shares, key=result.shares.get) == kind


def test_an_even_head_is_diffuse():
    (result,) = head_roles(torch.full((1, 7, 7), 1 / 7), "self")
    assert result.kind == "diffuse"
    assert result.entropy == pytest.approx(math.log2(7))
    assert result.evenness == pytest.approx(1)
    assert result.distance == pytest.approx(sum(abs(i - j) for i in range(7) for j in range(7)) / 49)


def test_causal_heads_count_only_what_they_may_see():
    even = torch.ones(6, 6).tril() / torch.arange(1, 7)[:, None]
    first = torch.zeros(6, 6)
    first[:, 0] = 1
    before = torch.zeros(6, 6)
    before[0, 0] = 1
    before[range(1, 6), range(5)] = 1
    kinds = head_roles(torch.stack((even, first, before)), "self", causal=True)
    assert [kind.kind for kind in kinds] == ["diffuse", "first", "previous"]
    assert kinds[0].evenness == pytest.approx(1)
    assert [item.entropy for item in kinds[1:]] == [0, 0]
    assert "end" not in kinds[0].shares and "next" not in kinds[0].shares


def test_a_head_over_another_sequence_has_a_diagonal():
    diagonal = looking(lambda q: 2 * q, queries=5, keys=9, weight=1)
    (result,) = head_roles(diagonal[None], "cross")
    assert result.kind == "selective"
    assert result.distance == pytest.approx(0)
    assert set(result.shares) == {"first", "end"}
    assert head_roles(looking(lambda q: 8, queries=5)[None], "cross")[0].kind == "end"


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 1, 5), (2, 5, 1), (2, 2, 2)])
def test_the_shortest_sequences_have_numbers_too(shape):
    weights = torch.rand(shape).softmax(-1)
    for kind in ("self", "cross") if shape[1] == shape[2] else ("cross",):
        for result in head_roles(weights, kind):
            assert all(
                math.isfinite(number) for number in (result.entropy, result.evenness, result.peak, result.distance)
            )
