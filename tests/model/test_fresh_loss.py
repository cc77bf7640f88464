"""A new model guesses: its loss is near ln V whatever the architecture, so that the first updates are not wasted."""

import math

import pytest
import torch
import torch.nn.functional as F

from heedful.config import ModelConfig
from heedful.model.transformer import build_model

from .samples import SYSTEMS

VOCABULARY = 300
SIZES = {"vocab_size": VOCABULARY, "d_model": 32, "d_ff": 32, "n_heads": 4, "dropout": 0.0, "max_length": 64}
MEMORY_NETWORK = {"architecture": "memory-network", "family": "decoder"}


@pytest.mark.parametrize("system", ["transformer", *SYSTEMS, "memory-network"])
def test_the_loss_of_a_fresh_model_is_near_that_of_a_guess(system):
    """In training mode, in which batch normalization has statistics; a norm makes logits of about unit variance."""
    changes = {"transformer": {}, "memory-network": MEMORY_NETWORK, **SYSTEMS}[system]
    torch.manual_seed(0)
    model = build_model(ModelConfig(**{"encoder_layers": 3, "decoder_layers": 3} | SIZES | changes)).train()
    source, target = torch.randint(4, VOCABULARY, (8, 16)), torch.randint(4, VOCABULARY, (8, 13))
    with torch.no_grad():
        hidden = model(target[:, :-1]) if system == "memory-network" else model(source, target[:, :-1])
        loss = F.cross_entropy(model.project(hidden).flatten(0, 1), target[:, 1:].flatten())
    assert abs(float(loss) - math.log(VOCABULARY)) < 1
