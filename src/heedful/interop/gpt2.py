"""GPT-2: a decoder alone, pre-norm, with learned positions. Its matrices are stored transposed, and q, k, v as one."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

from heedful.config import ModelConfig
from heedful.interop.architecture import ACTIVATIONS, Architecture, activation_name
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
    aliases: ClassVar[dict[str, str]] = {
        "hidden_size": "n_embd",
        "max_position_embeddings": "n_positions",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    }

    def config(self, foreign: ForeignConfig, names: Collection[str]) -> ModelConfig:
        foreign.only(scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
        d_model = foreign.integer("n_embd", 768, most=65_536)
        eos = foreign.integer("eos_token_id", 50256, least=0)
        return ModelConfig(
            family="decoder",
            vocab_size=foreign.integer("vocab_size", 50257),
            d_model=d_model,
            d_ff=foreign.integer("n_inner", 4 * d_model, most=1_048_576),
            n_heads=foreign.integer("n_head", 12, most=1024),
            decoder_layers=foreign.integer("n_layer", 12, most=1024),
            pre_norm=True,
            norm_eps=foreign.number("layer_norm_epsilon", 1e-5, least=1e-30, below=0.1),
            activation=foreign.choice("activation_function", "gelu_new", ACTIVATIONS),
            positions="learned",
            max_length=foreign.integer("n_positions", 1024, least=2, most=1_048_576),
            tie="all" if foreign.flag("tie_word_embeddings", True) else "none",
            scale_embedding=False,
            dropout=foreign.number("resid_pdrop", 0.1),
            attention_dropout=foreign.number("attn_pdrop", 0.1),
            pad_id=foreign.integer("pad_token_id", eos, least=0),
            bos_id=foreign.integer("bos_token_id", eos, least=0),
            eos_id=eos,
        )

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
        return {
            "architectures": ["GPT2LMHeadModel"],
            "model_type": self.model_type,
            "vocab_size": config.vocab_size,
            "n_positions": config.max_length,
            "n_embd": config.d_model,
            "n_layer": config.decoder_layers,
            "n_head": config.n_heads,
            "n_inner": config.d_ff,
            "activation_function": activation_name(config),
            "layer_norm_epsilon": config.norm_eps,
            "resid_pdrop": config.dropout,
            "embd_pdrop": config.dropout,
            "attn_pdrop": config.attention_dropout,
            "tie_word_embeddings": config.tie != "none",
            "pad_token_id": config.pad_id,
            "bos_token_id": config.bos_id,
            "eos_token_id": config.eos_id,
        }
