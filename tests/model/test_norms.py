"""Norms against `torch.nn`'s, over the real tokens alone, and what each of them depends on."""

import pytest
import torch
from torch import nn

from heedful.config import ModelConfig
from heedful.model.norms import NORMS, build_norm
from heedful.model.transformer import build_model

from .samples import another, sentences, shared, small, stir

LENGTHS = [7, 3, 5]


def made(kind: str) -> nn.Module:
    return stir(build_norm(small(norm=kind))).train()


def states() -> tuple[torch.Tensor, torch.Tensor]:
    """(3, 7, 16) hidden states and the mask of real ones; padding is large, so that no statistic can hide it."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(3, 7, 16, generator=generator, dtype=torch.float64) * 3 + 1
    real = torch.arange(7) < torch.tensor(LENGTHS)[:, None]
    return torch.where(real.unsqueeze(2), x, 1000.0), real


@pytest.mark.parametrize(("kind", "theirs"), [("layer", nn.LayerNorm), ("rms", nn.RMSNorm)])
def test_norms_of_a_token_are_torchs(kind, theirs):
    actual, (x, real) = made(kind), states()
    reference = theirs(16, eps=1e-5).double()
    reference.load_state_dict(actual.state_dict())
    torch.testing.assert_close(actual(x, real), reference(x))


def test_batch_norm_is_torchs_over_real_tokens_and_so_are_its_running_statistics():
    actual, (x, real) = made("batch"), states()
    reference = nn.BatchNorm1d(16).double()
    reference.load_state_dict(actual.state_dict() | {"num_batches_tracked": torch.tensor(0)})
    for scale in (1.0, 2.0):
        torch.testing.assert_close(actual(scale * x, real)[real], reference(scale * x[real]))
    torch.testing.assert_close(actual.running_mean, reference.running_mean)
    torch.testing.assert_close(actual.running_var, reference.running_var)
    torch.testing.assert_close(actual.eval()(x)[real], reference.eval()(x[real]))


def test_instance_norm_is_torchs_over_each_sequence():
    actual, (x, real) = made("instance"), states()
    reference = nn.InstanceNorm1d(16, affine=True).double()
    reference.load_state_dict(actual.state_dict())
    out = actual(x, real)
    for row, length in enumerate(LENGTHS):
        expected = reference(x[row : row + 1, :length].transpose(1, 2)).transpose(1, 2)
        torch.testing.assert_close(out[row : row + 1, :length], expected)


@pytest.mark.parametrize("kind", NORMS)
def test_only_batch_norm_makes_sentences_of_a_batch_depend_on_each_other(kind):
    model = build_model(small(norm=kind, dropout=0.0)).double().train()
    source, target = sentences(LENGTHS), sentences([4, 6, 2], seed=1, start=2)
    changed = source.clone()
    changed[0, 1] = another(source[0, 1])
    before, after = model(source, target), model(changed, target)
    assert ((before - after)[1:].abs().max() > 1e-9) == (kind == "batch")


def test_a_decoder_keeps_layer_norm_where_a_norm_cannot_be_causal():
    model = shared(small(norm="instance"))
    assert type(model.decoder.get_submodule("0.self_residual.norm")) is NORMS["layer"]
    with pytest.raises(ValueError, match="cannot be causal"):
        ModelConfig(family="decoder", norm="instance")
