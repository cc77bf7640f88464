"""Adam against torch's class, and what it is written for."""

import copy
import subprocess
import sys

import pytest
import torch

from heedful.config import ModelConfig, TrainSettings
from heedful.model.transformer import EncoderDecoder
from heedful.training.step import build_optimizer

CONFIG = ModelConfig(vocab_size=30, d_model=16, d_ff=32, n_heads=2, encoder_layers=1, decoder_layers=1, max_length=32)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_it_equals_torch_to_the_bit(decay: float) -> None:
    torch.manual_seed(0)
    model = EncoderDecoder(CONFIG)
    twin = copy.deepcopy(model)
    result = build_optimizer(model, TrainSettings(weight_decay=decay, backend="torch"))
    expected = torch.optim.AdamW(
        [
            {"params": [p for p in twin.parameters() if p.dim() > 1], "weight_decay": decay},
            {"params": [p for p in twin.parameters() if p.dim() == 1], "weight_decay": 0.0},
        ],
        lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=True,
    )  # fmt: skip
    for rate in (0.01, 0.02, 0.005):
        for actual, other in zip(model.parameters(), twin.parameters(), strict=True):
            actual.grad = torch.randn_like(actual)
            other.grad = actual.grad.clone()
        result.step(rate)
        for group in expected.param_groups:
            group["lr"] = rate
        expected.step()
    for actual, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(actual, other)
        assert {kind: value.tolist() for kind, value in result.state[actual].items()} == {
            kind: value.tolist() for kind, value in expected.state[other].items()
        }


def test_no_optimizer_loads_the_compiler_of_torch() -> None:
    program = """
import sys
from heedful.config import ModelConfig, TrainSettings
from heedful.model.transformer import build_model
from heedful.training.step import build_optimizer
model = build_model(ModelConfig(vocab_size=9, d_model=8, d_ff=8, n_heads=1, encoder_layers=1, decoder_layers=1))
for optimizer in ("adam", "muon"):
    for parameter in model.parameters():
        parameter.grad = parameter.detach().clone()
    build_optimizer(model, TrainSettings(optimizer=optimizer)).step(0.1)
    print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\nFalse\n"
