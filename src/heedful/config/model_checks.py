"""Checks across the settings of a `ModelConfig`: combinations that no model can have."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heedful.config.model_config import ModelConfig


# Settings that have an effect in some architectures only.
_TRANSFORMER = (
    "attention", "decoder_attention", "universal", "act_halting", "experts", "norm", "pointer", "sentence_input"
)  # fmt: skip
_RNN = ("cell", "cell_rank", "bidirectional", "source_attention", "source_span", "source_window")
ARCHITECTURES_OF = {
    **dict.fromkeys(_TRANSFORMER, ("transformer",)),
    **dict.fromkeys(_RNN, ("rnn",)),
    "kernel_width": ("conv", "bytenet", "neural-gpu"),
    "dilated": ("conv",),
    "separable": ("conv", "bytenet"),
    "unfold_ratio": ("bytenet", "neural-gpu"),
    "unfold_extra": ("bytenet", "neural-gpu"),
    "memory_width": ("neural-gpu",),
    "autoregressive": ("neural-gpu",),
    "memory_size": ("memory-network",),
    "memory_noise": ("memory-network",),
}


def check_model(config: ModelConfig) -> None:
    """Raise ValueError if two settings contradict each other."""
    _check_architecture_settings(config)
    if config.architecture == "transformer":
        _check_attention(config)
    else:
        _check_other_architecture(config)
    if config.positions in ("sinusoidal", "syntax") and config.has_positions and config.d_model % 2:
        raise ValueError(f"{config.positions} positions need an even d_model, and it is {config.d_model}")
    if config.source_vocab_size is not None and config.tie == "all":
        raise ValueError("separate vocabularies cannot share embeddings three ways; set model.tie=target")
    if config.family != "encoder" and (config.head != "linear" or config.pooler or config.labels):
        raise ValueError(f"head, pooler and labels are parts of an encoder, and this is the {config.family} family")
    if config.sentence_input and config.family != "encoder":
        raise ValueError(f"sentence_input is for an encoder, and this is the {config.family} family; leave it out")
    if config.family == "encoder" and config.one_state and config.label_kind in ("tagging", "question-answering"):
        setting = "sentence_input=true" if config.sentence_input else f"architecture={config.architecture}"
        raise ValueError(
            f"model.{setting} has one state for a whole text, and {config.label_kind} labels its tokens; leave it out, "
            "or set task to classification"
        )
    _check_audio_input(config)
    _check_pointer(config)
    if max(config.max_length, config.source_length) * config.d_model > 2**28:
        longest = max(config.max_length, config.source_length)
        raise ValueError(f"max_length ({longest}) times d_model ({config.d_model}) is more than 2 ** 28")
    if max(config.pad_id, config.bos_id, config.eos_id) >= config.vocab_size:
        raise ValueError(f"pad_id, bos_id and eos_id must be below vocab_size ({config.vocab_size})")


def _check_architecture_settings(config: ModelConfig) -> None:
    """Refuse a setting without effect, if it differs from its default."""
    for name, architectures in ARCHITECTURES_OF.items():
        if (
            config.architecture not in architectures
            and getattr(config, name) != type(config).model_fields[name].default
        ):
            several = "s" * (len(architectures) > 1)
            raise ValueError(
                f"{name} is a setting of the {' and '.join(architectures)} architecture{several}, and"
                f" model.architecture is {config.architecture}; leave it out"
            )


def _check_audio_input(config: ModelConfig) -> None:
    if not config.features:
        for name in ("full_window", "ctc"):
            if getattr(config, name):
                raise ValueError(f"{name} is for audio input, and this model reads tokens; leave it out")
    elif config.family != "encoder-decoder" or config.architecture != "transformer":
        raise ValueError("audio input needs a Transformer of the encoder-decoder family")
    elif config.act_halting or config.experts:
        raise ValueError("audio input does not work with act_halting or experts; leave them out")
    elif config.source_vocab_size is not None or config.tie == "target":
        raise ValueError("a model with audio input has no source vocabulary; set model.tie to all or none")


def _check_pointer(config: ModelConfig) -> None:
    if not config.pointer:
        return
    if config.family != "encoder-decoder" or config.features:
        raise ValueError("pointer copies tokens of a source text, and this model reads none; leave it out")
    if config.source_vocab_size is not None:
        raise ValueError(
            "pointer copies source tokens into the target, so both need one vocabulary; set text.joint=true"
        )


def _check_attention(config: ModelConfig) -> None:
    if config.d_model % config.n_heads:
        raise ValueError(
            f"d_model ({config.d_model}) must be divisible by n_heads ({config.n_heads}); set model.n_heads to one of "
            "its divisors, or change model.d_model"
        )
    if config.positions == "rotary" and config.key_width % 2:
        raise ValueError(f"rotary positions need an even width of a head's keys, and it is {config.key_width}")
    if config.family == "encoder" and config.decoder_attention is not None:
        raise ValueError("decoder_attention is set, but a model of the encoder family has no decoder; leave it out")
    if config.family != "encoder" and config.attention_of_decoder == "linformer":
        raise ValueError(
            "linformer attention projects all tokens onto a few, so it cannot be causal; "
            "set model.decoder_attention, or model.attention in a GPT, to another kind"
        )
    for kind in (config.attention, config.attention_of_decoder):
        if kind in ("linformer", "linear") and config.positions in ("alibi", "relative"):
            raise ValueError(
                f"{kind} attention computes no score per pair of tokens, which {config.positions} positions need; "
                "set model.positions to sinusoidal, learned or rotary"
            )
        if kind == "linear" and config.attention_dropout:
            raise ValueError(
                "linear attention has no attention weights to apply dropout to; set model.attention_dropout to 0"
            )
    if config.positions == "syntax" and (
        config.family != "encoder-decoder" or config.attention != "full" or config.universal
    ):
        raise ValueError(
            "syntax positions are those of a source sentence under full attention; set model.positions to another "
            "scheme, or model.attention=full and model.universal=false in a translator"
        )
    if config.act_halting and not config.universal:
        raise ValueError("act_halting needs a Universal Transformer; set model.universal=true")
    if config.experts and config.experts_per_token > config.experts:
        raise ValueError(f"experts_per_token ({config.experts_per_token}) is more than experts ({config.experts})")
    if config.norm == "instance" and config.family == "decoder":
        raise ValueError(
            "instance norm takes statistics over a whole sequence, so a language model cannot be causal with it; "
            "set model.norm to layer, rms or batch"
        )


def _check_other_architecture(config: ModelConfig) -> None:
    architecture = config.architecture
    if architecture == "rnn" and config.source_span != "global" and config.source_attention in ("none", "additive"):
        raise ValueError(
            f"{config.source_span} attention is Luong's, and source_attention is {config.source_attention}; "
            "set model.source_attention to dot, general or concat"
        )
    if architecture == "rnn" and config.bidirectional and config.d_model % 2:
        raise ValueError(f"a bidirectional encoder needs an even d_model, and it is {config.d_model}")
    if architecture == "bytenet" and config.d_model % 2:
        raise ValueError(f"a bytenet halves d_model inside its blocks, and it is odd: {config.d_model}")
    if architecture == "memory-network" and config.family == "encoder-decoder":
        raise ValueError(
            "a memory-network answers questions (the encoder family) or models language (decoder), and translates "
            "nothing; use another architecture"
        )
    if architecture == "neural-gpu" and config.family == "decoder":
        raise ValueError("a neural-gpu transforms a source, and a language model has none; use another architecture")
    if (
        architecture in ("conv", "bytenet", "neural-gpu")
        and config.family != "decoder"
        and config.kernel_width % 2 == 0
    ):
        raise ValueError(f"a convolution over a source needs an odd kernel_width, and it is {config.kernel_width}")
    if architecture == "conv" and config.positions not in ("sinusoidal", "learned"):
        raise ValueError(
            f"the conv architecture does not support {config.positions} positions; set model.positions=sinusoidal"
        )
