"""MarianMT, the form in which OPUS-MT translators come, PEGASUS, the same with norms first, and BART.

They are the Transformer of the paper but for one thing: their position vectors hold all sines and then all cosines,
where the paper's take turns. The order of the hidden dimensions means nothing to any other layer, so we put theirs into
our order when a model comes in, and back when it goes out. No number changes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from heedful.config import ModelConfig
from heedful.interop.architecture import Architecture, refused, with_output_bias
from heedful.interop.setting_mapping import Settings
from heedful.interop.untrusted import ForeignConfig
from heedful.interop.weight_mapping import WeightLayout, WeightMapping, both, encoder_decoder_blocks
from heedful.ops.position_tables import sinusoids

IGNORED = r"^model\.(encoder|decoder)\.embed_positions\.weight$|^final_logits_bias$"
READS_HIDDEN = ("query.weight", "key.weight", "value.weight", "up.weight", "embedding.weight")
WRITES_HIDDEN = (".output.weight", ".output.bias", "down.weight", "down.bias", "norm.weight", "norm.bias")


class Marian(Architecture):
    model_type, title, family = "marian", "MarianMT", "encoder-decoder"
    their_class: ClassVar[str] = "MarianMTModel"
    default_size: ClassVar[int] = 58101  # of the vocabulary
    most_positions: ClassVar[int] = 2**25  # the table is computed: no file has to pay for it
    settings: ClassVar[Settings] = {
        "d_model": ("d_model", 1024),
        "d_ff": ("encoder_ffn_dim decoder_ffn_dim", 4096),
        "n_heads": ("encoder_attention_heads decoder_attention_heads", 16),
        "encoder_layers": ("encoder_layers", 12),
        "decoder_layers": ("decoder_layers", 12),
        "activation": ("activation_function", "gelu"),
        "max_length": ("max_position_embeddings", 1024),
        "scale_embedding": ("scale_embedding", False),
        "dropout": ("dropout", 0.1),
        "attention_dropout": ("attention_dropout", 0.0),
        "activation_dropout": ("activation_dropout", 0.0),
        "pad_id": ("pad_token_id", 58100),
        "eos_id": ("eos_token_id", 0),
        "bos_id": ("decoder_start_token_id", lambda settings: settings["pad_id"]),
    }
    fixed: ClassVar[dict[str, object]] = {
        "pre_norm": False,
        "norm_eps": 1e-5,
        "positions": "sinusoidal",
        "embedding_norm": False,
        "bias": True,
    }
    aliases: ClassVar[dict[str, str]] = {
        "hidden_size": "d_model",
        "num_attention_heads": "encoder_attention_heads",
        "num_hidden_layers": "encoder_layers",
    }

    def config(self, foreign: ForeignConfig, names: Collection[str]) -> ModelConfig:
        shared = foreign.flag("share_encoder_decoder_embeddings", True)
        tied = foreign.flag("tie_word_embeddings", True)
        if shared:
            foreign.same("vocab_size", "decoder_vocab_size")
        source_size = foreign.integer("vocab_size", self.default_size)
        return ModelConfig(
            **self.read_settings(foreign),
            vocab_size=source_size if shared else foreign.integer("decoder_vocab_size", source_size),
            source_vocab_size=None if shared else source_size,
            tie=("all" if shared else "target") if tied else "none",
            output_bias="final_logits_bias" in names,
        )

    def layout(self, config: ModelConfig) -> WeightLayout:
        embeddings = _embeddings(config)
        places = {**embeddings.places, **encoder_decoder_blocks(config)}
        if config.output_bias:
            places["final_logits_bias"] = WeightMapping(("output_bias",), "row")
        return replace(embeddings, places=places, ignored=IGNORED)

    def description(self, config: ModelConfig) -> dict[str, Any]:
        return self.write_settings(config, self.their_class) | {
            "is_encoder_decoder": True,
            "vocab_size": config.source_vocab_size or config.vocab_size,
            "decoder_vocab_size": config.vocab_size,
            "share_encoder_decoder_embeddings": config.tie == "all",
            "tie_word_embeddings": config.tie != "none",
            "bos_token_id": config.bos_id,
            "forced_eos_token_id": config.eos_id,
        }

    def inwards(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        return reorder_hidden(state, interleaving_order(state["embedding.weight"].size(1)))

    def outwards(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        return with_output_bias(reorder_hidden(state, interleaving_order(state["embedding.weight"].size(1)).argsort()))


class Pegasus(Marian):
    model_type, title = "pegasus", "PEGASUS"
    their_class = "PegasusForConditionalGeneration"
    default_size: ClassVar[int] = 50265
    settings: ClassVar[Settings] = {**Marian.settings, "pad_id": ("pad_token_id", 0), "eos_id": ("eos_token_id", 1)}
    fixed: ClassVar[dict[str, object]] = Marian.fixed | {"pre_norm": True}

    def layout(self, config: ModelConfig) -> WeightLayout:
        layout = super().layout(config)
        last = [both(f"model.{side}.layer_norm", f"{side}.norm") for side in ("encoder", "decoder")]
        return replace(layout, places={**layout.places, **last[0], **last[1]})

    def completed(self, weights: dict[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
        order = interleaving_order(config.d_model).argsort()
        table = torch.from_numpy(sinusoids(config.max_length, config.d_model)).index_select(1, order)
        added = {f"model.{side}.embed_positions.weight": table.clone() for side in ("encoder", "decoder")}
        if config.tie == "none":  # they have a shared matrix all the same, which nothing reads
            added["model.shared.weight"] = weights["model.decoder.embed_tokens.weight"].clone()
        return weights | added

    def check(self, config: ModelConfig) -> None:
        super().check(config)
        if config.source_vocab_size is not None:
            raise refused("source_vocab_size", config.source_vocab_size, "a PEGASUS model has one vocabulary for all")
        if config.tie == "target":
            raise refused("tie", config.tie, "a PEGASUS model ties all of its embeddings or none")


class Bart(Marian):
    """BART: learned positions, of which the first two are unused, and a LayerNorm after the embeddings."""

    model_type, title = "bart", "BART"
    their_class = "BartForConditionalGeneration"
    default_size: ClassVar[int] = 50265
    settings: ClassVar[Settings] = {
        **Marian.settings,
        "pad_id": ("pad_token_id", 1),
        "eos_id": ("eos_token_id", 2),
        "bos_id": ("decoder_start_token_id", lambda settings: settings["eos_id"]),
    }
    fixed: ClassVar[dict[str, object]] = Marian.fixed | {"positions": "learned", "embedding_norm": True}

    def layout(self, config: ModelConfig) -> WeightLayout:
        layout = super().layout(config)
        places = dict(layout.places)
        for side in ("encoder", "decoder"):
            places[f"model.{side}.embed_positions.weight"] = WeightMapping((f"{side}.position.table",), "offset")
            places |= both(f"model.{side}.layernorm_embedding", f"{side}.first_norm")
        return replace(layout, places=places, ignored=r"^final_logits_bias$")

    def inwards(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        return state

    def outwards(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        return with_output_bias(state)

    def check(self, config: ModelConfig) -> None:
        super().check(config)
        if config.source_vocab_size is not None or config.tie != "all":
            raise refused("tie", config.tie, "a BART model has one vocabulary, and shares its embeddings three ways")


def _embeddings(config: ModelConfig) -> WeightLayout:
    """The vocabulary's matrices; untied, `shared` only counts in files that have no others."""
    source, target, output = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"
    shared = "model.shared.weight"
    if config.tie == "all":
        return WeightLayout(
            {shared: WeightMapping(("embedding.weight",))}, dict.fromkeys((source, target, output), (shared,))
        )
    places = {source: WeightMapping(("source_embedding.weight",)), target: WeightMapping(("embedding.weight",))}
    spares = {shared: (source, target)}
    if config.tie == "none":
        return WeightLayout(places | {output: WeightMapping(("output.weight",))}, {}, spares)
    return WeightLayout(places, {output: (target,)}, spares)


def interleaving_order(width: int) -> Tensor:
    """-> (D,): 0, D/2, 1, D/2 + 1, …: where the dimension that we have at a place stands in their order."""
    return torch.arange(width).view(2, width // 2).t().flatten()


def reorder_hidden(state: dict[str, Tensor], order: Tensor) -> dict[str, Tensor]:
    """The same model with its hidden dimensions in another order."""

    def reorder(name: str, tensor: Tensor) -> Tensor:
        if name == "output.weight" or name.endswith(READS_HIDDEN):
            return tensor.index_select(1, order)
        return tensor.index_select(0, order) if name.endswith(WRITES_HIDDEN) else tensor

    return {name: reorder(name, tensor) for name, tensor in state.items()}
