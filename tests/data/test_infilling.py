from __future__ import annotations

import itertools

import numpy as np
import pytest

from heedful.data.infilling import infill

MASK = 10_000


@pytest.mark.parametrize("length", [1, 2, 10, 200])
@pytest.mark.parametrize("share", [0.1, 0.3, 0.9])
def test_what_is_not_masked_stays_in_order_and_the_share_is_kept(length, share):
    ids = np.arange(length)
    for seed in range(20):
        corrupted = infill(ids, MASK, share, np.random.default_rng(seed))
        rest = [token for token in corrupted if token != MASK]
        assert rest == sorted(rest) and set(rest) <= set(ids.tolist())
        assert length - len(rest) == round(share * length)  # masked tokens
        for left, right in itertools.pairwise(rest):  # a gap has a mask
            between = corrupted[corrupted.index(left) + 1 : corrupted.index(right)]
            assert set(between) <= {MASK} and (right == left + 1 or between)


def test_spans_have_three_tokens_on_average():
    random = np.random.default_rng(1)
    masks = [infill(np.arange(200), MASK, 0.3, random).count(MASK) for _ in range(300)]
    assert 60 / np.mean(masks) == pytest.approx(3, rel=0.07)
