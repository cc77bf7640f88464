"""Writes translators as CTranslate2 folders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from heedful.config import ModelConfig
from heedful.interop.architecture import refuse_other_systems, refused
from heedful.interop.model_card import card
from heedful.model.block import Stack
from heedful.model.transformer import EncoderDecoder
from heedful.packages import explain_missing
from heedful.storage.atomic import atomic_write
from heedful.storage.folder import CARD, SOURCE_TOKENIZER, TOKENIZER, ModelFolder
from heedful.text import Tokenizer

if TYPE_CHECKING:
    from ctranslate2.specs import TransformerSpec

ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "silu": "SWISH", "swiglu": "SWISH"}
# Position options of a CTranslate2 specification; absolute positions are a table in any case.
POSITIONS: dict[str, dict[str, Any]] = {
    "sinusoidal": {},
    "learned": {},
    "rotary": {"rotary_dim": 0, "rotary_interleave": True},  # 0 is the whole width of a head
    "relative": {"relative_position": True},
}


def write(opened: ModelFolder, path: Path, quantization: str | None = None) -> None:
    """Write a folder that `ctranslate2.Translator` loads, with heedful's tokenizers beside the model."""
    model, config = opened.model, opened.model.config
    if not isinstance(model, EncoderDecoder):
        raise refused("family", config.family, "only translators are written for CTranslate2")
    if config.features:
        raise refused("features", config.features, "only translators are written for CTranslate2")
    refuse_other_systems(config, "CTranslate2")
    if config.positions not in POSITIONS:
        raise refused("positions", config.positions, f"CTranslate2's encoder knows only {', '.join(POSITIONS)}")
    if config.key_width != config.d_head:
        raise refused("d_key", config.d_key, "in CTranslate2 all widths of a head are d_model / n_heads")
    spec = _spec(config)
    _fill(spec, model)
    _configure(spec, opened)
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(path))
    atomic_write(path / CARD, card(opened, "ctranslate2"))
    atomic_write(path / TOKENIZER, opened.tokenizer.to_json())
    if opened.source_tokenizer is not opened.tokenizer:
        atomic_write(path / SOURCE_TOKENIZER, opened.source_tokenizer.to_json())


def package() -> Any:
    """Import ctranslate2, an optional dependency."""
    with explain_missing("conversion to ctranslate2"):
        import ctranslate2
    return ctranslate2


def _spec(config: ModelConfig) -> TransformerSpec:
    specs = package().specs.transformer_spec
    options = {
        "num_heads": config.n_heads,
        "pre_norm": config.pre_norm,
        "activation": getattr(package().specs.Activation, ACTIVATIONS[config.activation]),
        "layernorm_embedding": config.embedding_norm,
        "ffn_glu": config.activation == "swiglu",
        **POSITIONS[config.positions],
    }
    encoder = specs.TransformerEncoderSpec(config.encoder_layers, **options)
    spec: TransformerSpec = specs.TransformerSpec(
        encoder, specs.TransformerDecoderSpec(config.decoder_layers, **options)
    )
    return spec


def _fill(spec: TransformerSpec, model: EncoderDecoder) -> None:
    # copies: quantization works in place, and must not reach the model
    weights = {name: tensor.detach().cpu().float().numpy().copy() for name, tensor in model.state_dict().items()}
    source = weights["embedding.weight" if model.config.tie == "all" else "source_embedding.weight"]
    spec.encoder.embeddings[0].weight = source
    spec.decoder.embeddings.weight = weights["embedding.weight"]
    spec.decoder.projection.weight = weights["output.weight" if model.config.tie == "none" else "embedding.weight"]
    if model.output_bias is not None:
        spec.decoder.projection.bias = weights["output_bias"]
    for name in ("encoder", "decoder"):
        stack = model.get_submodule(name)
        assert isinstance(stack, Stack)
        _stack(getattr(spec, name), name, stack, model.config, weights)


Weights = dict[str, npt.NDArray[np.float32]]


def _stack(spec: Any, name: str, stack: Stack, config: ModelConfig, weights: Weights) -> None:
    """Embeddings, blocks and final norm of one side."""
    spec.scale_embeddings = config.scale_embedding
    if config.positions in ("sinusoidal", "learned"):
        table = stack.position.table
        assert isinstance(table, Tensor)
        spec.position_encodings.encodings = table.detach().cpu().float().numpy()
    if config.embedding_norm:
        _norm(spec.layernorm_embedding, f"{name}.first_norm", weights)
    if config.pre_norm:
        _norm(spec.layer_norm, f"{name}.norm", weights)
    for index, layer in enumerate(spec.layer):
        _layer(layer, f"{name}.{index}", weights)
        if config.positions == "relative":  # CTranslate2 also adds vectors to the values; here they are zero
            keys = weights[f"{name}.position.{index}.table"]
            layer.self_attention.relative_position_keys = keys
            layer.self_attention.relative_position_values = np.zeros_like(keys)


def _layer(spec: Any, name: str, weights: Weights) -> None:
    """One block: self-attention has one matrix for q, k, v; cross-attention has one for q and one for k, v."""
    attention = spec.self_attention
    _linear(attention.linear[0], weights, *(f"{name}.self.{part}" for part in ("query", "key", "value")))
    _linear(attention.linear[1], weights, f"{name}.self.output")
    _norm(attention.layer_norm, f"{name}.self_residual.norm", weights)
    if f"{name}.cross.query.weight" in weights:
        _linear(spec.attention.linear[0], weights, f"{name}.cross.query")
        _linear(spec.attention.linear[1], weights, f"{name}.cross.key", f"{name}.cross.value")
        _linear(spec.attention.linear[2], weights, f"{name}.cross.output")
        _norm(spec.attention.layer_norm, f"{name}.cross_residual.norm", weights)
    gated = f"{name}.feed.gate.weight" in weights
    _linear(spec.ffn.linear_0, weights, f"{name}.feed.{'gate' if gated else 'up'}")
    if gated:
        _linear(spec.ffn.linear_0_noact, weights, f"{name}.feed.up")
    _linear(spec.ffn.linear_1, weights, f"{name}.feed.down")
    _norm(spec.ffn.layer_norm, f"{name}.feed_residual.norm", weights)


def _linear(spec: Any, weights: Weights, *names: str) -> None:
    spec.weight = np.concatenate([weights[f"{name}.weight"] for name in names])
    if f"{names[0]}.bias" in weights:
        spec.bias = np.concatenate([weights[f"{name}.bias"] for name in names])


def _norm(spec: Any, name: str, weights: Weights) -> None:
    spec.gamma, spec.beta = weights[f"{name}.weight"], weights[f"{name}.bias"]


def _configure(spec: TransformerSpec, opened: ModelFolder) -> None:
    """Vocabularies, special tokens and epsilon."""
    config, target = opened.model.config, opened.tokenizer
    spec.register_source_vocabulary(pieces(opened.source_tokenizer, config.source_vocab_size or config.vocab_size))
    spec.register_target_vocabulary(pieces(target, config.vocab_size))
    unk, bos, eos = target.pieces([target.unk_id, config.bos_id, config.eos_id])
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = unk, bos, eos
    spec.config.decoder_start_token = bos
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = config.norm_eps


def pieces(tokenizer: Tokenizer, size: int) -> list[str]:
    """The token of every id of the vocabulary."""
    return tokenizer.pieces(range(size))
