"""The tensor spec is what the modules have, for every family, architecture and setting that adds or shapes a tensor."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from heedful.config import ModelConfig
from heedful.errors import HeedfulError
from heedful.model.spec import tensor_spec
from heedful.model.transformer import build_model

SMALL = {
    "vocab_size": 11,
    "d_model": 8,
    "d_ff": 12,
    "n_heads": 2,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "max_length": 16,
}
FAMILIES = ("encoder-decoder", "decoder", "encoder")
TRANSFORMERS = [
    {},
    {"pre_norm": True, "bias": False},
    {"activation": "swiglu", "output_bias": True},
    {"d_key": 6, "tie": "none"},
    {"positions": "learned", "embedding_norm": True},
    {"positions": "relative", "relative_window": 3},
    {"positions": "rotary", "attention": "sparse"},
    {"attention": "linformer", "decoder_attention": "window", "attention_rank": 4},
    {"attention": "linear"},
    {"universal": True},
    {"universal": True, "act_halting": True, "pre_norm": True, "positions": "relative"},
    {"norm": "rms", "pre_norm": True},
    {"norm": "batch", "pre_norm": True},
    {"experts": 3, "activation": "swiglu"},
    {"experts": 2, "universal": True, "bias": False},
]
OTHERS = [
    {"architecture": "rnn", "cell": cell, "bidirectional": both, "source_attention": attention, "bias": both}
    for cell, both, attention in product(
        ("rnn", "lstm", "gru", "flstm"), (True, False), ("none", "additive", "dot", "general")
    )
] + [
    {"architecture": "rnn", "cell_rank": 3, "cell": "flstm", "source_attention": "concat", "source_span": "local-m"},
    {"architecture": "rnn", "source_attention": "dot", "source_span": "local-p"},
    {"architecture": "conv", "separable": True},
    {"architecture": "bytenet"},
    {"architecture": "memory-network"},
    {"architecture": "neural-gpu"},
    {"architecture": "neural-gpu", "autoregressive": False, "bias": False},
    {"architecture": "bytenet", "separable": True, "bias": False},
    {"architecture": "conv"},
    {"architecture": "conv", "positions": "learned", "bias": False, "dilated": True},
]
ENCODERS = [{"head": "transform", "pooler": True, "token_types": 2}, {"labels": ("a", "b", "c"), "head": "none"}]
TRANSLATORS = [
    {"positions": "syntax", "relative_window": 3},
    {"norm": "instance", "pre_norm": True},
    {"tie": "target", "source_vocab_size": 7},
    {"tie": "none", "source_vocab_size": 7},
    {"source_max_length": 20, "positions": "learned"},
    {"pointer": True, "bias": False},
    {"source_max_length": 20, "attention": "linformer", "decoder_attention": "full"},
]
RECOGNIZERS = [
    {"features": 5, "positions": "learned", "source_max_length": 20},
    {"features": 5, "feature_stride": 4, "tie": "none", "ctc": True},
]


def configs() -> list[ModelConfig]:
    valid_configs = []
    for family, settings in [
        *product(FAMILIES, [*TRANSFORMERS, *OTHERS]),
        *(("encoder", changes) for changes in ENCODERS),
        *(("encoder-decoder", changes) for changes in [*TRANSLATORS, *RECOGNIZERS]),
    ]:
        fitting = {
            name: value for name, value in settings.items() if name != "decoder_attention" or family != "encoder"
        }
        if family == "decoder" and fitting.get("attention") == "linformer":
            continue  # it would see what is to come, which the configuration refuses
        if (family, fitting.get("architecture")) in (("decoder", "neural-gpu"), ("encoder-decoder", "memory-network")):
            continue  # refused by the configuration, too
        valid_configs.append(ModelConfig.model_validate(SMALL | {"family": family} | fitting))
    return valid_configs


@pytest.mark.parametrize("config", configs(), ids=lambda config: f"{config.family}-{config.architecture}")
def test_the_spec_lists_the_tensors_of_the_modules(config: ModelConfig) -> None:
    with torch.device("meta"):
        modules = {name: tuple(tensor.shape) for name, tensor in build_model(config).state_dict().items()}
    assert tensor_spec(config) == modules


def test_a_configuration_that_does_not_fit_has_no_spec() -> None:
    with pytest.raises((HeedfulError, ValueError)):
        ModelConfig.model_validate(SMALL | {"d_model": 9})
