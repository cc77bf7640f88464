"""Muon against singular values and against torch's own, which rounds to bfloat16."""

import copy

import pytest
import torch

from heedful.config import ModelConfig, TrainSettings
from heedful.model.transformer import EncoderDecoder, build_model
from heedful.ops.newton_schulz import newton_schulz
from heedful.training.optim.muon import Muon, layer_matrices
from heedful.training.step import build_optimizer

SETTINGS = TrainSettings(optimizer="muon", weight_decay=0.05, precision="float32")


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 16, 40), (2, 40, 16)])
def test_steps_keep_singular_vectors_and_bring_singular_values_near_one(shape: tuple[int, int, int]) -> None:
    torch.manual_seed(1)
    matrices = torch.randn(shape, dtype=torch.float64)
    left, values, right = torch.linalg.svd(matrices, full_matrices=False)
    turned = left.mT @ newton_schulz(matrices) @ right.mT
    result = turned.diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(turned, torch.diag_embed(result), rtol=0, atol=1e-9)
    large = values / values.norm(dim=1, keepdim=True) > 0.02  # the smallest need more rounds
    assert ((result[large] > 0.6) & (result[large] < 1.3)).all()


def test_a_matrix_of_zeros_stays() -> None:
    assert not newton_schulz(torch.zeros(2, 3, 4)).any()


@pytest.fixture
def model() -> EncoderDecoder:
    torch.manual_seed(1)
    sizes = {"d_model": 16, "d_ff": 40, "n_heads": 2, "encoder_layers": 2, "decoder_layers": 1, "vocab_size": 30}
    model = build_model(ModelConfig.model_validate(sizes))
    assert isinstance(model, EncoderDecoder)
    return model


def test_it_takes_the_matrices_of_the_layers_only(model: EncoderDecoder) -> None:
    names = {
        name
        for name, p in model.named_parameters()
        if any(p is layer_matrice for layer_matrice in layer_matrices(model))
    }
    assert names == {n for n, p in model.named_parameters() if p.dim() == 2 and n.startswith(("encoder.", "decoder."))}
    assert len(names) == 2 * 6 + 10


def test_weights_that_layers_share_take_one_step() -> None:
    sizes = {"d_model": 16, "d_ff": 40, "n_heads": 2, "encoder_layers": 3, "decoder_layers": 2, "vocab_size": 30}
    model = build_model(ModelConfig.model_validate(sizes | {"universal": True}))
    matrices = layer_matrices(model)
    assert len({id(matrix) for matrix in matrices}) == len(matrices) == 6 + 10


def test_it_equals_torch_muon_within_bfloat16_and_adam_elsewhere(model: EncoderDecoder) -> None:
    expected = copy.deepcopy(model)
    ours = build_optimizer(model, SETTINGS)
    assert isinstance(ours, Muon)
    matrices = layer_matrices(expected)
    rest = [p for p in expected.parameters() if not any(p is matrix for matrix in matrices)]
    muon = torch.optim.Muon(matrices, lr=0.01, weight_decay=0.05, adjust_lr_fn="match_rms_adamw")
    adam = torch.optim.AdamW(
        [
            {"params": [p for p in rest if p.dim() > 1], "weight_decay": 0.05},
            {"params": [p for p in rest if p.dim() == 1], "weight_decay": 0.0},
        ],
        lr=0.01, betas=(0.9, 0.98), eps=1e-9,
    )  # fmt: skip
    for _ in range(3):
        before = [p.detach().clone() for p in matrices]
        for actual, other in zip(model.parameters(), expected.parameters(), strict=True):
            actual.grad = torch.randn_like(actual)
            other.grad = actual.grad.clone()
        ours.step(0.01)
        for item in (muon, adam):
            item.step()
        for old, actual, other in zip(before, layer_matrices(model), matrices, strict=True):
            assert (actual - other).norm() < 0.03 * (other - old).norm()
            other.data.copy_(actual)  # rounding shall not add up
    mine_rest = [
        p for p in model.parameters() if not any(p is layer_matrice for layer_matrice in layer_matrices(model))
    ]
    for actual, other in zip(mine_rest, rest, strict=True):
        torch.testing.assert_close(actual, other)
