"""Which models the native engine supports, their configuration as it sees it, and the position tensors that it needs.

Imports no torch.
"""

from __future__ import annotations

import sys
from collections.abc import Container, Iterator

from heedful.config import ModelConfig
from heedful.native.capi import ModelConfigStruct
from heedful.ops import position_tables

# As numbered in csrc/config.h.
FAMILIES = ("encoder-decoder", "decoder", "encoder")
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu", "swiglu")
POSITIONS = {"sinusoidal": 0, "learned": 0, "rotary": 1, "alibi": 2}
HEADS = ("none", "linear", "transform")

KNOWN_VALUES: dict[str, Container[object]] = {  # of settings that have others too; in inference
    "architecture": ("transformer",),
    "attention": ("full",),
    "universal": (False,),
    "sentence_input": (False,),
    "norm": ("layer",),
    "experts": (0,),
    "positions": POSITIONS,
}
TRAINED_VALUES: dict[str, Container[object]] = KNOWN_VALUES | {"features": (0,), "source_max_length": (None,)}


def supports(config: ModelConfig) -> bool:
    """Whether the engine computes this model: a Transformer with full attention and a usual position scheme."""
    return not unsupported_setting(config)


def unsupported_setting(config: ModelConfig, training: bool = False) -> str:
    """The first setting of a model that the engine does not know, such as 'model.attention=window'; empty if none."""
    for name, values in (TRAINED_VALUES if training else KNOWN_VALUES).items():
        if getattr(config, name) not in values:
            return f"model.{name}={str(getattr(config, name)).lower()}"
    if config.attention_of_decoder != "full":
        return f"model.decoder_attention={config.attention_of_decoder}"
    if replaced := _replaced_class(config):
        return replaced
    return "" if config.key_width == config.d_head else f"model.d_key={config.d_key}"


def _replaced_class(config: ModelConfig) -> str:
    """A setting whose name stands for a class of the user (docs/extending.md), with that class; empty if none."""
    for module, registry, setting in (
        ("heedful.model.positions", "POSITIONS", "positions"),
        ("heedful.model.attention", "ATTENTIONS", "attention"),
    ):
        classes = getattr(sys.modules.get(module), registry, {})  # not imported (it needs torch): nothing is replaced
        name = getattr(config, setting)
        if name in classes and not classes[name].__module__.startswith("heedful."):
            return f"the class {classes[name].__name__} for model.{setting}={name}"
    return ""


def config_struct(config: ModelConfig, int8: bool = False, shortlists: bool = False) -> ModelConfigStruct:
    """The configuration as the engine reads it, for training and for inference."""
    family = config.family
    separate = family == "encoder-decoder" and config.tie != "all" and not config.features
    return ModelConfigStruct(
        family=FAMILIES.index(family), width=config.d_model, inner=config.d_ff, heads=config.n_heads,
        encoder_layers=0 if family == "decoder" else config.encoder_layers,
        decoder_layers=0 if family == "encoder" else config.decoder_layers,
        vocabulary=config.vocab_size,
        source_vocabulary=(config.source_vocab_size or config.vocab_size) if separate else 0,
        max_length=config.max_length, activation=ACTIVATIONS.index(config.activation),
        positions=POSITIONS[config.positions], pre_norm=config.pre_norm, embedding_norm=config.embedding_norm,
        tied=config.tie != "none", token_types=config.token_types if family == "encoder" else 0,
        head=HEADS.index(config.head), pooler=config.pooler, labels=len(config.labels),
        pointer=config.pointer,
        features=config.features, feature_stride=config.feature_stride, source_length=config.source_length, int8=int8,
        shortlists=shortlists, norm_epsilon=config.norm_eps,
        embedding_scale=config.d_model**0.5 if config.scale_embedding else 1.0, dropout=config.dropout,
        attention_dropout=config.attention_dropout, activation_dropout=config.activation_dropout,
    )  # fmt: skip


def position_table(config: ModelConfig, length: int) -> position_tables.Table | None:
    """Sinusoids, rotary angles or ALiBi's slopes; None if positions are learned."""
    match config.positions:
        case "sinusoidal":
            return position_tables.sinusoids(length, config.d_model)
        case "rotary":
            return position_tables.rotary_table(length, config.key_width)
        case "alibi":
            return position_tables.alibi_slopes(config.n_heads)
    return None


def position_tensors(config: ModelConfig) -> Iterator[tuple[str, position_tables.Table]]:
    """The tensors of position schemes that are computed, not learned, by name."""
    kind = "slopes" if config.positions == "alibi" else "table"
    for side, length in (("encoder", config.source_length), ("decoder", config.max_length)):
        table = position_table(config, length)
        if table is not None and config.family in (side, "encoder-decoder"):
            yield f"{side}.position.{kind}", table
