"""Whisper (Radford et al., 2022): log-mel frames, two convolutions, a pre-norm Transformer with learned positions.

Its key projections have no bias. A bias of keys adds the same number to all scores of a query and changes no weight, so
ours are zero when a model comes in and are left out when it goes out.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

from torch import Tensor

from heedful.config import ModelConfig
from heedful.interop.architecture import ACTIVATIONS, Architecture, activation_name, refused
from heedful.interop.untrusted import ForeignConfig
from heedful.interop.weight_mapping import WeightLayout, WeightMapping, both

STRIDE = 2
PROJECTIONS = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "output"}


class Whisper(Architecture):
    model_type, title, family = "whisper", "Whisper", "encoder-decoder"
    audio = True
    fixed: ClassVar[dict[str, object]] = {
        "pre_norm": True,
        "norm_eps": 1e-5,
        "positions": "learned",
        "embedding_norm": False,
        "bias": True,
        "output_bias": False,
        "feature_stride": STRIDE,
        "full_window": True,
    }
    aliases: ClassVar[dict[str, str]] = {
        "hidden_size": "d_model",
        "num_attention_heads": "encoder_attention_heads",
        "num_hidden_layers": "encoder_layers",
    }

    def config(self, given: ForeignConfig, names: Collection[str]) -> ModelConfig:
        given.same("encoder_ffn_dim", "decoder_ffn_dim", 1536)
        given.same("encoder_attention_heads", "decoder_attention_heads", 4)
        d_model = given.integer("d_model", 384, most=65_536)
        most = 2**25 // d_model  # positions, as many as their tables may have
        return ModelConfig(
            family="encoder-decoder",
            vocab_size=given.integer("vocab_size", 51865),
            features=given.integer("num_mel_bins", 80, most=1024),
            feature_stride=STRIDE,
            full_window=True,
            d_model=d_model,
            d_ff=given.integer("encoder_ffn_dim", 1536, most=1_048_576),
            n_heads=given.integer("encoder_attention_heads", 4, most=1024),
            encoder_layers=given.integer("encoder_layers", 4, most=1024),
            decoder_layers=given.integer("decoder_layers", 4, most=1024),
            pre_norm=True,
            activation=given.choice("activation_function", "gelu", ACTIVATIONS),
            positions="learned",
            max_length=given.integer("max_target_positions", 448, least=2, most=most),
            source_max_length=given.integer("max_source_positions", 1500, least=2, most=most),
            tie="all" if given.flag("tie_word_embeddings", True) else "none",
            scale_embedding=given.flag("scale_embedding", False),
            dropout=given.number("dropout", 0.0),
            attention_dropout=given.number("attention_dropout", 0.0),
            activation_dropout=given.number("activation_dropout", 0.0),
            pad_id=given.integer("pad_token_id", 50256, least=0),
            bos_id=given.integer("decoder_start_token_id", 50257, least=0),
            eos_id=given.integer("eos_token_id", 50256, least=0),
        )

    def canonical(self, name: str) -> str:
        return name if name.startswith(("model.", "proj_out.")) else f"model.{name}"

    def layout(self, config: ModelConfig) -> WeightLayout:
        places = {
            "model.decoder.embed_tokens.weight": WeightMapping(("embedding.weight",)),
            "model.encoder.embed_positions.weight": WeightMapping(("encoder.position.table",)),
            "model.decoder.embed_positions.weight": WeightMapping(("decoder.position.table",)),
            **both("model.encoder.conv1", "front_end.first"),
            **both("model.encoder.conv2", "front_end.second"),
        }
        for side, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
            for index in range(layers):
                theirs, ours = f"model.{side}.layers.{index}", f"{side}.{index}"
                places |= _attention(f"{theirs}.self_attn", f"{ours}.self")
                if side == "decoder":
                    places |= _attention(f"{theirs}.encoder_attn", f"{ours}.cross")
                places |= both(f"{theirs}.fc1", f"{ours}.feed.up")
                places |= both(f"{theirs}.fc2", f"{ours}.feed.down")
                places |= both(f"{theirs}.final_layer_norm", f"{ours}.feed_residual.norm")
            places |= both(f"model.{side}.layer_norm", f"{side}.norm")
        if config.tie == "none":
            return WeightLayout(places | {"proj_out.weight": WeightMapping(("output.weight",))})
        return WeightLayout(places, {"proj_out.weight": ("model.decoder.embed_tokens.weight",)})

    def description(self, config: ModelConfig) -> dict[str, Any]:
        return {
            "architectures": ["WhisperForConditionalGeneration"],
            "model_type": self.model_type,
            "is_encoder_decoder": True,
            "vocab_size": config.vocab_size,
            "num_mel_bins": config.features,
            "d_model": config.d_model,
            "encoder_layers": config.encoder_layers,
            "decoder_layers": config.decoder_layers,
            "encoder_ffn_dim": config.d_ff,
            "decoder_ffn_dim": config.d_ff,
            "encoder_attention_heads": config.n_heads,
            "decoder_attention_heads": config.n_heads,
            "max_source_positions": config.source_length,
            "max_target_positions": config.max_length,
            "activation_function": activation_name(config),
            "dropout": config.dropout,
            "attention_dropout": config.attention_dropout,
            "activation_dropout": config.activation_dropout,
            "scale_embedding": config.scale_embedding,
            "tie_word_embeddings": config.tie != "none",
            "pad_token_id": config.pad_id,
            "bos_token_id": config.eos_id,
            "eos_token_id": config.eos_id,
            "decoder_start_token_id": config.bos_id,
        }

    def inwards(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        keys = [name for name in state if name.endswith(".key.weight")]
        return state | {name.removesuffix("weight") + "bias": state[name].new_zeros(len(state[name])) for name in keys}

    def redundant(self, name: str) -> bool:
        return name.endswith(".key.bias")

    def check(self, config: ModelConfig) -> None:
        super().check(config)
        if config.ctc:
            raise refused("ctc", config.ctc, "a Whisper model has no CTC layer")


def _attention(theirs: str, ours: str) -> dict[str, WeightMapping]:
    places = {
        name: place for t, o in PROJECTIONS.items() for name, place in both(f"{theirs}.{t}", f"{ours}.{o}").items()
    }
    del places[f"{theirs}.k_proj.bias"]
    return places | both(f"{theirs}_layer_norm", f"{ours}_residual.norm")
