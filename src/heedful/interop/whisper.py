"""Whisper (Radford et al., 2022): log-mel frames, two convolutions, a pre-norm Transformer with learned positions.

Its key projections have no bias. A bias of keys adds the same number to all scores of a query and changes no weight, so
ours are zero when a model comes in and are left out when it goes out.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

from torch import Tensor

from heedful.config import ModelConfig
from heedful.interop.architecture import Architecture, refused
from heedful.interop.setting_mapping import Settings
from heedful.interop.untrusted import ForeignConfig
from heedful.interop.weight_mapping import WeightLayout, WeightMapping, both, encoder_decoder_blocks

STRIDE = 2


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
    most_positions: ClassVar[int] = 2**25
    settings: ClassVar[Settings] = {
        "vocab_size": ("vocab_size", 51865),
        "features": ("num_mel_bins", 80),
        "d_model": ("d_model", 384),
        "d_ff": ("encoder_ffn_dim decoder_ffn_dim", 1536),
        "n_heads": ("encoder_attention_heads decoder_attention_heads", 4),
        "encoder_layers": ("encoder_layers", 4),
        "decoder_layers": ("decoder_layers", 4),
        "activation": ("activation_function", "gelu"),
        "max_length": ("max_target_positions", 448),
        "source_max_length": ("max_source_positions", 1500),
        "tie": ("tie_word_embeddings", True),
        "scale_embedding": ("scale_embedding", False),
        "dropout": ("dropout", 0.0),
        "attention_dropout": ("attention_dropout", 0.0),
        "activation_dropout": ("activation_dropout", 0.0),
        "pad_id": ("pad_token_id", 50256),
        "bos_id": ("decoder_start_token_id", 50257),
        "eos_id": ("eos_token_id", 50256),
    }
    aliases: ClassVar[dict[str, str]] = {
        "hidden_size": "d_model",
        "num_attention_heads": "encoder_attention_heads",
        "num_hidden_layers": "encoder_layers",
    }

    def config(self, foreign: ForeignConfig, names: Collection[str]) -> ModelConfig:
        return ModelConfig(**self.read_settings(foreign))

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
        places |= encoder_decoder_blocks(config, key_bias=False)
        for side in ("encoder", "decoder"):
            places |= both(f"model.{side}.layer_norm", f"{side}.norm")
        if config.tie == "none":
            return WeightLayout(places | {"proj_out.weight": WeightMapping(("output.weight",))})
        return WeightLayout(places, {"proj_out.weight": ("model.decoder.embed_tokens.weight",)})

    def description(self, config: ModelConfig) -> dict[str, Any]:
        described = self.write_settings(config, "WhisperForConditionalGeneration")
        return described | {"is_encoder_decoder": True, "bos_token_id": config.eos_id}

    def inwards(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        keys = [name for name in state if name.endswith(".key.weight")]
        return state | {name.removesuffix("weight") + "bias": state[name].new_zeros(len(state[name])) for name in keys}

    def redundant(self, name: str) -> bool:
        return name.endswith(".key.bias")

    def check(self, config: ModelConfig) -> None:
        super().check(config)
        if config.ctc:
            raise refused("ctc", config.ctc, "a Whisper model has no CTC layer")
