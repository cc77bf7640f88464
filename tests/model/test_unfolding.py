"""Unfolding: the number of columns of a source is the same alone and in a batch, at every length."""

import pytest
import torch

from heedful.model.baselines.unfolding import count_columns, unfold

from .samples import sentences, shared, small

CHANGES = {
    "bytenet": {"architecture": "bytenet"},
    "neural-gpu": {"architecture": "neural-gpu", "d_model": 6, "n_heads": 1},
}


@pytest.mark.parametrize(("ratio", "numerator", "denominator"), [(1.2, 6, 5), (1.1, 11, 10), (1.0, 1, 1), (1.5, 3, 2)])
def test_columns_follow_exact_arithmetic_at_every_length(ratio, numerator, denominator):
    config = small(architecture="bytenet", unfold_ratio=ratio)
    lengths = torch.arange(1, 257)
    real = torch.arange(256) < lengths.unsqueeze(1)  # (256, 256): row n - 1 has n real tokens
    expected = [-(-numerator * n // denominator) + config.unfold_extra for n in range(1, 257)]
    assert count_columns(real, config).tolist() == expected
    for n, columns in enumerate(expected, 1):
        x, mask = unfold(torch.ones(1, n, 1), torch.ones(1, n, dtype=torch.bool), config)
        assert x.size(1) == mask.size(1) == int(mask.sum()) == columns


@pytest.mark.parametrize("system", CHANGES)
@pytest.mark.parametrize("length", [25, 45])
def test_a_source_is_decoded_alone_as_in_a_batch(system, length):
    """The lengths at which 1.2 n differs in single and double precision; the target is longer than the columns."""
    model = shared(small(**CHANGES[system]))
    source, target = sentences([length, 3, length + 6]), sentences([length * 3 // 2] * 3, seed=1, start=2)
    batch = model(source, target)
    for row, n in enumerate([length, 3, length + 6]):
        alone = model(source[row : row + 1, :n], target[row : row + 1])
        torch.testing.assert_close(alone[0], batch[row], atol=1e-12, rtol=0)
