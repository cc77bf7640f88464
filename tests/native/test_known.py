"""What the engine says of a model without torch is what its modules are."""

import itertools
from typing import Any

import pytest
import torch

from heedful.config import ModelConfig
from heedful.model import build
from heedful.native import computes, tensors
from heedful.native.known import position_tables
from heedful.weights import shapes

SIZES = {"vocab_size": 31, "d_model": 24, "d_ff": 20, "n_heads": 3, "encoder_layers": 1, "decoder_layers": 2}
CHOICES: list[dict[str, Any]] = [
    {},
    {"norm": "pre"},
    {"bias": False, "activation": "swiglu"},
    {"activation": "swiglu", "output_bias": True},
    {"embedding_norm": True, "norm": "pre", "output_bias": True},
]
TIES: list[dict[str, Any]] = [{}, {"tie": "target"}, {"tie": "none"}, {"tie": "target", "source_vocab_size": 17}]


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary", "alibi"])
def test_its_tensors_have_the_names_and_shapes_of_the_modules(positions: str) -> None:
    for changes, tie in itertools.product(CHOICES, TIES):
        config = ModelConfig(**SIZES | {"positions": positions, "max_length": 9} | changes | tie)
        assert computes(config)
        assert tensors(config) == shapes(config)


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "alibi"])
def test_its_tables_are_those_of_the_modules(positions: str) -> None:
    config = ModelConfig(**SIZES | {"positions": positions, "max_length": 40})
    buffers = dict(build(config).named_buffers())
    found = dict(position_tables(config))
    assert len(found) == len(buffers) == 2
    for name, table in found.items():
        theirs = buffers[name if name in buffers else name.replace("table", "turns")]
        assert torch.equal(torch.from_numpy(table), theirs)


def test_learned_positions_are_no_table_to_compute() -> None:
    assert not list(position_tables(ModelConfig(**SIZES | {"positions": "learned"})))
