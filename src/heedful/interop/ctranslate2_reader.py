"""Opens CTranslate2 folders with a translator: model.bin, config.json and vocabularies, with a tokenizer beside them.

CTranslate2 has no tokenizer. heedful looks for its own tokenizer.json (as `--to ctranslate2` writes it), source.spm and
target.spm (as OPUS-MT has them) or sentencepiece.model (as in packages of Argos Translate).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor

from heedful.config import ModelConfig, SearchSettings
from heedful.errors import FolderError, quote
from heedful.interop.ctranslate2 import ACTIVATIONS
from heedful.interop.ctranslate2_variables import INT8, SCALE, Variables, open_variables
from heedful.interop.ctranslate2_vocabularies import read_vocabularies
from heedful.interop.marian import interleaving_order, reorder_hidden
from heedful.interop.token_lists import Vocabularies, read_tokenizers, with_start_token
from heedful.interop.untrusted import ForeignConfig
from heedful.interop.weight_files import ForeignWeights
from heedful.interop.weight_mapping import WeightLayout, WeightMapping
from heedful.model.spec import tensor_spec
from heedful.ops.position_tables import sinusoids
from heedful.storage import folder
from heedful.storage.folder import ModelFolder
from heedful.storage.module_weights import fill_model

SIDES = ("encoder", "decoder")
SOURCE_EMBEDDING, EMBEDDING = "encoder/embeddings_0/weight", "decoder/embeddings/weight"
OUTPUT = "decoder/projection/weight"
NUMBERED_ACTIVATIONS = ("RELU", "GELUTanh", "SWISH", "GELU")  # as numbered in the file
READ = (
    *("num_heads", "pre_norm", "activation", "scale_embeddings", "start_from_zero_embedding"),
    *("rotary_dim", "rotary_interleave", "rotary_base"),
)
IGNORED = (  # they do not change what is computed, or only where another one is set
    *("alignment_heads", "alignment_layer", "alibi_use_positive_positions", "embeddings_merge"),
    *("rotary_scaling_type", "rotary_scaling_factor", "head_dim"),
)
POSITION_TOLERANCE = 1e-4


def read(path: Path, description: dict[str, Any], tokenizers: Path) -> ModelFolder:
    """Open a CTranslate2 folder; `description` is its config.json, `tokenizers` the folder with its tokenizers."""
    foreign_config = ForeignConfig(description, path / folder.CONFIG)
    variables, vocabularies = open_variables(path), read_vocabularies(path)
    if variables.specification != "TransformerSpec":
        raise FolderError(
            f"{variables.where} holds a {quote(variables.specification)}; heedful opens CTranslate2's translators, "
            "which are a TransformerSpec."
        )
    foreign_config.only(add_source_bos=False)
    starts_from_zero = bool(variables.scalar("decoder/start_from_zero_embedding", 0))  # Marian
    if not starts_from_zero:  # in Marian, a source ends with eos, also where the tokenizer adds it
        foreign_config.only(add_source_eos=True)
    weights = variables.weights()
    config = _config(foreign_config, variables, weights, vocabularies)
    state = _layout(config).inwards(weights, tensor_spec(config))
    if starts_from_zero:
        config, state, vocabularies = with_start_token(config, state, vocabularies)
    if config.positions == "learned":
        config, state = _with_sinusoids(config, state)
    model = fill_model(config, state.items(), variables.where)
    target, source = read_tokenizers(tokenizers, vocabularies, config)
    return ModelFolder(model, target, source, SearchSettings(), path)


def _config(
    foreign_config: ForeignConfig, variables: Variables, weights: ForeignWeights, vocabularies: Vocabularies
) -> ModelConfig:
    _refuse_unknown(variables)
    shapes, where = weights.shapes, variables.where
    layers = {side: _count_layers(side, weights) for side in SIDES}
    embedding, up = shapes.get(EMBEDDING, ()), shapes.get("decoder/layer_0/ffn/linear_0/weight", ())
    if len(embedding) != 2 or len(up) != 2:
        raise FolderError(f"{where} lacks embeddings or a feed-forward layer of its decoder; copy it again.")
    if embedding[0] != len(vocabularies.target):
        raise FolderError(
            f"{where} has embeddings for {embedding[0]:,} tokens, and the vocabulary has {len(vocabularies.target):,}."
        )
    tied, one_vocabulary = _is_tied(variables, OUTPUT), vocabularies.source is vocabularies.target
    shared = tied and one_vocabulary and _is_tied(variables, SOURCE_EMBEDDING)
    bos = _token_id(
        foreign_config, "decoder_start_token", vocabularies.target, foreign_config.values.get("bos_token") or "<s>"
    )
    pad = vocabularies.target.index("<pad>") if "<pad>" in vocabularies.target else bos
    gated = "decoder/layer_0/ffn/linear_0_noact/weight" in shapes
    lengths = [shape[0] for name, shape in shapes.items() if name.endswith("position_encodings/encodings") and shape]
    relative = _relative_table(weights)
    try:
        return ModelConfig(
            family="encoder-decoder",
            vocab_size=embedding[0],
            source_vocab_size=None if one_vocabulary else len(vocabularies.source),
            d_model=embedding[1],
            d_ff=up[0],
            n_heads=_same(variables, "num_heads"),
            encoder_layers=layers["encoder"],
            decoder_layers=layers["decoder"],
            pre_norm=bool(_same(variables, "pre_norm")),
            embedding_norm="decoder/layernorm_embedding/gamma" in shapes,
            activation="swiglu" if gated else _activation(variables),
            positions="learned" if lengths else "relative" if relative else _rotary(variables),
            relative_window=max(1, (relative[0] - 1) // 2) if relative else 16,
            max_length=min(lengths, default=ModelConfig.model_fields["max_length"].default),
            tie=("all" if shared else "target") if tied else "none",
            scale_embedding=_scales_embeddings(variables, embedding[1]),
            bias="decoder/layer_0/ffn/linear_0/bias" in shapes,
            output_bias="decoder/projection/bias" in shapes,
            norm_eps=foreign_config.number("layer_norm_epsilon", 1e-5),
            pad_id=pad,
            bos_id=bos,
            eos_id=_token_id(foreign_config, "eos_token", vocabularies.target, "</s>"),
        )
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise FolderError(f"{where} contradicts itself: {reason}.") from None


def _is_tied(variables: Variables, name: str) -> bool:
    """Whether a matrix is that of the decoder's embeddings."""
    return variables.find(name) is not None and variables.find(name) == variables.find(EMBEDDING)


def _refuse_unknown(variables: Variables) -> None:
    """Refuse settings that heedful does not know, unless they are zero, which means off."""
    for name in variables.names():
        variable, setting = variables.find(name), name.rpartition("/")[2]
        if variable is None or variable.shape or name.endswith(SCALE) or setting in READ + IGNORED:
            continue
        if (value := variables.scalar(name, 0)) != 0:
            raise FolderError(
                f"{variables.where}: {quote(name)} is {value:g}, a setting that heedful does not compute."
            )


def _count_layers(side: str, weights: ForeignWeights) -> int:
    count = 0
    while f"{side}/layer_{count}/self_attention/linear_0/weight" in weights.shapes:
        count += 1
    if not count:
        raise FolderError(f"{weights.where} has no layers of the {side} with self-attention; heedful cannot open it.")
    return count


def _same(variables: Variables, setting: str) -> int:
    """A setting that the encoder and the decoder must share."""
    encoder, decoder = (int(variables.scalar(f"{side}/{setting}", 0)) for side in SIDES)
    if encoder != decoder:
        raise FolderError(
            f"{variables.where}: {setting} of the encoder ({encoder}) and of the decoder ({decoder}) differ, but "
            "heedful has one setting for both."
        )
    return encoder


def _activation(variables: Variables) -> str:
    number = _same(variables, "activation")
    if not 0 <= number < len(NUMBERED_ACTIVATIONS):
        raise FolderError(f"{variables.where}: activation is {number}, which heedful does not compute.")
    return next(name for name, foreign in ACTIVATIONS.items() if foreign == NUMBERED_ACTIVATIONS[number])


def _scales_embeddings(variables: Variables, width: int) -> bool:
    """CTranslate2 stores a flag, or the factor itself."""
    factors = set()
    for name in (f"{side}/scale_embeddings" for side in SIDES):
        value, variable = variables.scalar(name, 1.0), variables.find(name)
        is_flag = variable is None or variable.dtype == INT8
        factors.add((width**0.5 if value else 1.0) if is_flag else value)
    if factors == {1.0}:
        return False
    if any(abs(factor / width**0.5 - 1) > 1e-3 for factor in factors):
        raise FolderError(
            f"{variables.where} scales embeddings by {factors}; heedful scales by √d_model or not at all."
        )
    return True


def _relative_table(weights: ForeignWeights) -> tuple[int, ...]:
    """The shape of a table of relative positions; CTranslate2 adds vectors to the values too, which must be zero."""
    for name in weights.shapes:
        if name.endswith("/relative_position_values") and weights.read(name).any():
            raise FolderError(f"{weights.where}: {quote(name)} is not zero, but heedful adds positions to keys alone.")
    return weights.shapes.get("decoder/layer_0/self_attention/relative_position_keys", ())


def _rotary(variables: Variables) -> str:
    rotary = [variables.scalar(f"{side}/layer_0/self_attention/rotary_dim", -1) for side in SIDES]
    interleaved = [variables.scalar(f"{side}/layer_0/self_attention/rotary_interleave", 0) for side in SIDES]
    bases = {variables.scalar(f"{side}/layer_0/self_attention/rotary_base", 10_000) for side in SIDES}
    if rotary != [0, 0] or interleaved != [1, 1] or bases != {10_000}:
        raise FolderError(
            f"{variables.where} has neither a table of positions nor interleaved rotary positions over whole heads; "
            "heedful opens no other position scheme of CTranslate2."
        )
    return "rotary"


def _token_id(foreign_config: ForeignConfig, name: str, vocabulary: list[str], default: str) -> int:
    token = foreign_config.values.get(name) or default
    if not isinstance(token, str) or token not in vocabulary:
        if name == "decoder_start_token":  # models that start from a zero embedding need none
            return 0
        raise foreign_config.wrong(name, "a token of the vocabulary")
    return vocabulary.index(token)


# ---- weights


def _layout(config: ModelConfig) -> WeightLayout:
    """Heedful's tensors in each variable."""
    places = {EMBEDDING: WeightMapping(("embedding.weight",))}
    copies: dict[str, tuple[str, ...]] = {}
    if config.tie == "all":
        copies[SOURCE_EMBEDDING] = (EMBEDDING,)
    else:
        places[SOURCE_EMBEDDING] = WeightMapping(("source_embedding.weight",))
    if config.tie == "none":
        places[OUTPUT] = WeightMapping(("output.weight",))
    else:
        copies[OUTPUT] = (EMBEDDING,)
    if config.output_bias:
        places["decoder/projection/bias"] = WeightMapping(("output_bias",))
    for side, layers in zip(SIDES, (config.encoder_layers, config.decoder_layers), strict=True):
        if config.positions == "learned":
            places[f"{side}/position_encodings/encodings"] = WeightMapping((f"{side}.position.table",))
        if config.embedding_norm:
            places |= _norm(f"{side}/layernorm_embedding", f"{side}.first_norm")
        if config.pre_norm:
            places |= _norm(f"{side}/layer_norm", f"{side}.norm")
        for index in range(layers):
            places |= dict(_layer(config, f"{side}/layer_{index}", f"{side}.{index}"))
            if config.positions == "relative":
                name = f"{side}/layer_{index}/self_attention/relative_position_keys"
                places[name] = WeightMapping((f"{side}.position.{index}.table",))
    return WeightLayout(places, copies, ignored="/relative_position_values$")


def _layer(config: ModelConfig, foreign: str, name: str) -> Iterator[tuple[str, WeightMapping]]:
    """One block: the inverse of what `ctranslate2.write` fuses."""
    fused = {
        "self_attention/linear_0": ("self.query", "self.key", "self.value"),
        "self_attention/linear_1": ("self.output",),
    }
    norms = {"self_attention": "self_residual", "ffn": "feed_residual"}
    if name.startswith("decoder"):
        fused |= {"attention/linear_0": ("cross.query",), "attention/linear_1": ("cross.key", "cross.value")}
        fused |= {"attention/linear_2": ("cross.output",)}
        norms |= {"attention": "cross_residual"}
    gated = config.activation == "swiglu"
    fused |= {"ffn/linear_0": ("feed.gate" if gated else "feed.up",), "ffn/linear_1": ("feed.down",)}
    fused |= {"ffn/linear_0_noact": ("feed.up",)} if gated else {}
    for linear, parts in fused.items():
        for kind in ("weight", "bias") if config.bias else ("weight",):
            yield f"{foreign}/{linear}/{kind}", WeightMapping(tuple(f"{name}.{part}.{kind}" for part in parts))
    for block, norm in norms.items():
        yield from _norm(f"{foreign}/{block}/layer_norm", f"{name}.{norm}.norm").items()


def _norm(foreign: str, name: str) -> dict[str, WeightMapping]:
    return {
        f"{foreign}/gamma": WeightMapping((f"{name}.weight",)),
        f"{foreign}/beta": WeightMapping((f"{name}.bias",)),
    }


def _with_sinusoids(config: ModelConfig, state: dict[str, Tensor]) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Recognize the paper's positions, interleaved or, as in Marian, sines before cosines; else they are learned."""
    names = [f"{side}.position.table" for side in SIDES]
    tables = [state[name] for name in names]
    table = torch.from_numpy(sinusoids(config.max_length, config.d_model).astype(np.float32))
    order = interleaving_order(config.d_model)
    for reordered in (False, True):
        expected = table.index_select(1, order.argsort()) if reordered else table
        if all(torch.allclose(positions, expected, rtol=0, atol=POSITION_TOLERANCE) for positions in tables):
            state = {name: tensor for name, tensor in state.items() if name not in names}
            state = reorder_hidden(state, order) if reordered else state
            return config.model_copy(update={"positions": "sinusoidal"}), state
    return config, state
