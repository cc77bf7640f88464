"""Sizes that suit corpora: what a preset fills in where the user left a setting open. Names and numbers, nothing else.

Translators follow the paper, but for the small ones: where minutes count, norms come first, Muon takes the steps,
weights decay, embeddings begin near those of their translations, and tokens are weighed against part of the vocabulary;
the smallest also read subwords that are split at random.
Decoders and encoders are what learns fastest from little text on a CPU: norms first, rotary positions, no smoothing,
weight decay, and a rate that falls to zero with the end of the run.
"""

from typing import Any, Literal

Preset = Literal["tiny", "small", "base", "big"]
Family = Literal["encoder-decoder", "decoder", "encoder"]
Architecture = Literal["transformer", "rnn", "conv"]
Sections = dict[str, dict[str, Any]]

QUICK: dict[str, Any] = {  # what learns most from a corpus that is not large, in minutes or hours
    "embedding_init": "lsa",
    "optimizer": "muon",
    "warmup": 200,
    "schedule": "linear",
    "sampled_softmax": 2048,
}

PRESETS: dict[Preset, Sections] = {
    "tiny": {
        "model": {
            "d_model": 128,
            "d_ff": 256,
            "n_heads": 4,
            "encoder_layers": 4,
            "decoder_layers": 4,
            "pre_norm": True,
        },
        "train": QUICK | {"bpe_dropout": 0.1, "learning_rate": 6e-3, "batch_tokens": 2048, "max_updates": 10_000},
    },
    "small": {
        "model": {
            "d_model": 256,
            "d_ff": 1024,
            "n_heads": 4,
            "encoder_layers": 6,
            "decoder_layers": 2,
            "pre_norm": True,
        },
        "train": QUICK | {"learning_rate": 4e-3, "max_updates": 40_000},
    },
    "base": {"model": {"dropout": 0.1}, "train": {"batch_tokens": 25_000, "micro_batches": 8}},
    "big": {
        "model": {"d_model": 1024, "d_ff": 4096, "n_heads": 16, "dropout": 0.3},
        "train": {"batch_tokens": 25_000, "micro_batches": 16, "max_updates": 300_000, "average_checkpoints": 20},
    },
}

TODAY: Sections = {  # what all decoders and encoders share
    "model": {
        "pre_norm": True,
        "positions": "rotary",
        "activation": "gelu",
        "scale_embedding": False,
        "dropout": 0.1,
    },
    "train": {
        "schedule": "cosine",
        "label_smoothing": 0.0,
        "beta2": 0.99,
        "epsilon": 1e-8,
        "weight_decay": 0.1,
        "clip_norm": 1.0,
        "average_checkpoints": 1,
        "patience": 0,
    },
}

ENCODER: dict[str, Any] = {"head": "transform", "output_bias": True, "token_types": 2, "dropout": 0.1}

SIZES: dict[Preset, Sections] = {
    "tiny": {
        "model": {
            "d_model": 128,
            "d_ff": 512,
            "n_heads": 4,
            "encoder_layers": 4,
            "decoder_layers": 4,
            "dropout": 0.0,
        },
        "train": {"learning_rate": 4e-3, "warmup": 100, "max_updates": 6000, "batch_tokens": 1024, "block_size": 128},
    },
    "small": {
        "model": {"d_model": 256, "d_ff": 1024, "n_heads": 4, "encoder_layers": 6, "decoder_layers": 6},
        "train": {"learning_rate": 1e-3, "warmup": 500, "max_updates": 40_000, "batch_tokens": 8192, "block_size": 256},
    },
    "base": {
        "model": {"d_model": 768, "d_ff": 3072, "n_heads": 12, "encoder_layers": 12, "decoder_layers": 12},
        "train": {"learning_rate": 6e-4, "warmup": 2000, "batch_tokens": 65_536, "micro_batches": 8, "block_size": 512},
    },
    "big": {
        "model": {"d_model": 1024, "d_ff": 4096, "n_heads": 16, "encoder_layers": 24, "decoder_layers": 24},
        "train": {
            "learning_rate": 3e-4,
            "warmup": 2000,
            "batch_tokens": 131_072,
            "micro_batches": 32,
            "block_size": 1024,
        },
    },
}

# A model that has read before learns a task in a few passes, at a low rate.
FINE_TUNING: dict[str, Any] = {
    "learning_rate": 3e-4,
    "warmup": 50,
    "schedule": "linear",
    "batch_tokens": 2048,
    "max_updates": 1500,
    "patience": 8,
}

# So does a translator that goes on with other pairs: steps of a first training would undo what it knows.
GOING_ON: dict[str, Any] = {
    "optimizer": "adam",
    "learning_rate": 3e-4,
    "warmup": 100,
    "schedule": "linear",
    "bpe_dropout": 0.0,
    "sampled_softmax": 0,
}

# What the systems before the Transformer need: few layers, low rates, and no gradient that is too large.
EARLIER: dict[Architecture, Sections] = {
    "transformer": {},
    "rnn": {
        "model": {"encoder_layers": 1, "decoder_layers": 1},
        "train": {
            "embedding_init": "random",
            "bpe_dropout": 0.0,
            "sampled_softmax": 0,
            "optimizer": "adam",
            "learning_rate": 2e-3,
            "warmup": 200,
            "clip_norm": 1.0,
        },
    },
    "conv": {
        "model": {"positions": "sinusoidal"},
        "train": {
            "embedding_init": "random",
            "bpe_dropout": 0.0,
            "sampled_softmax": 0,
            "optimizer": "adam",
            "learning_rate": 1e-3,
            "warmup": 400,
            "clip_norm": 0.5,
        },
    },
}


def preset(family: Family, name: Preset, architecture: Architecture = "transformer") -> Sections:
    """The sections of a preset for a family and an architecture."""
    sections = PRESETS[name]
    if family != "encoder-decoder":
        sections = {section: TODAY[section] | SIZES[name][section] for section in TODAY}
        sections["model"] |= {"family": family} | (ENCODER if family == "encoder" else {})
    earlier = EARLIER[architecture]
    return {section: sections.get(section, {}) | earlier.get(section, {}) for section in ("model", "train")}


def preset_for(pairs: int) -> Preset:
    """The preset that suits a corpus of so many sentence pairs."""
    if pairs < 100_000:
        return "tiny"
    return "small" if pairs < 1_000_000 else "base"


def weight_decay_for(updates: float, rate: float) -> float:
    """What suits Muon, where so many updates are a pass over the corpus.

    Weights that decay are a mean of past steps, and how far back it reaches is counted in passes (Wang and Aitchison,
    2024): at the highest rate, one pass leaves exp(-0.4) of what was there. More than 0.3 has not been tried.
    """
    return min(0.3, float(f"{0.4 / (rate * updates):.1g}"))


def preset_for_text(tokens: int) -> Preset:
    """The preset that suits a text of so many tokens."""
    if tokens < 3_000_000:
        return "tiny"
    return "small" if tokens < 300_000_000 else "base"
