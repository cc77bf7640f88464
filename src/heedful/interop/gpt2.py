"""GPT-2: a decoder alone, pre-norm, with learned positions. Its matrices are stored transposed, and q, k, v as one."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

from heedful.config import ModelConfig
from heedful.interop.architecture import Architecture
from heedful.interop.setting_mapping import Settings
from heedful.interop.untrusted import ForeignConfig
from heedful.interop.weight_mapping import WeightLayout, WeightMapping, both


class Gpt2(Architecture):
    model_type, title, family = "gpt2", "GPT-2", "decoder"
    fixed: ClassVar[dict[str, object]] = {
        "pre_norm": True,
        "positions": "learned",
        "embedding_norm": False,
        "scale_embedding": False,
        "bias": True,
        "output_bias": False,
    }
    settings: ClassVar[Settings] = {
        "vocab_size": ("vocab_size", 50257),
        "d_model": ("n_embd", 768),
        "d_ff": ("n_inner", lambda settings: 4 * settings["d_model"]),
        "n_heads": ("n_head", 12),
        "decoder_layers": ("n_layer", 12),
        "norm_eps": ("layer_norm_epsilon", 1e-5),
        "activation": ("activation_function", "gelu_new"),
        "max_length": ("n_positions", 1024),
        "tie": ("tie_word_embeddings", True),
        "dropout": ("resid_pdrop", 0.1),
        "attention_dropout": ("attn_pdrop", 0.1),
        "eos_id": ("eos_token_id", 50256),
        "pad_id": ("pad_token_id", lambda settings: settings["eos_id"]),
        "bos_id": ("bos_token_id", lambda settings: settings["eos_id"]),
    }
    aliases: ClassVar[dict[str, str]] = {
        "hidden_size": "n_embd",
        "max_position_embeddings": "n_positions",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    }

    def config(self, foreign: ForeignConfig, names: Collection[str]) -> ModelConfig:
        foreign.only(scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
        return ModelConfig(**self.read_settings(foreign))

    def canonical(self, name: str) -> str:
        bare = not name.startswith(("transformer.", "lm_head."))
        return f"transformer.{name}" if bare else name

    def layout(self, config: ModelConfig) -> WeightLayout:
        places = {
            "transformer.wte.weight": WeightMapping(("embedding.weight",)),
            "transformer.wpe.weight": WeightMapping(("decoder.position.table",)),
        }
        for index in range(config.decoder_layers):
            foreign_block, block = f"transformer.h.{index}", f"decoder.{index}"
            heads = [f"{block}.self.{part}" for part in ("query", "key", "value")]
            places |= both(f"{foreign_block}.ln_1", f"{block}.self_residual.norm")
            places |= both(f"{foreign_block}.attn.c_attn", *heads, form="transposed")
            places |= both(f"{foreign_block}.attn.c_proj", f"{block}.self.output", form="transposed")
            places |= both(f"{foreign_block}.ln_2", f"{block}.feed_residual.norm")
            places |= both(f"{foreign_block}.mlp.c_fc", f"{block}.feed.up", form="transposed")
            places |= both(f"{foreign_block}.mlp.c_proj", f"{block}.feed.down", form="transposed")
        places |= both("transformer.ln_f", "decoder.norm")
        if config.tie == "none":
            places["lm_head.weight"] = WeightMapping(("output.weight",))
        copies = {} if config.tie == "none" else {"lm_head.weight": ("transformer.wte.weight",)}
        return WeightLayout(places, copies, ignored=r"\.attn\.(bias|masked_bias)$")

    def description(self, config: ModelConfig) -> dict[str, Any]:
        return self.write_settings(config, "GPT2LMHeadModel") | {"embd_pdrop": config.dropout}
