"""Presets: the values of settings that the user did not set, by size of the model and kind of task. Names and numbers.

The base and big translators follow the paper. The small ones train with pre-norm, the Muon optimizer, weight decay,
LSA-initialized embeddings and a sampled softmax; the smallest also with BPE-dropout. Language models (decoders and
encoders) use what learns fastest from little text on a CPU: pre-norm, rotary positions, no label smoothing, weight
decay, and a learning rate that decays to zero at the end of the run.
"""

from bisect import bisect
from collections.abc import Sequence
from typing import Any, Literal

Preset = Literal["tiny", "small", "base", "big"]
Family = Literal["encoder-decoder", "decoder", "encoder"]
Architecture = Literal["transformer", "rnn", "conv", "bytenet", "neural-gpu", "memory-network"]
Sections = dict[str, dict[str, Any]]

SMALL_CORPUS: dict[str, Any] = {  # small corpora, minutes or hours of training
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
        "train": SMALL_CORPUS
        | {"bpe_dropout": 0.1, "learning_rate": 6e-3, "batch_tokens": 2048, "max_updates": 10_000},
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
        "train": SMALL_CORPUS | {"learning_rate": 4e-3, "max_updates": 40_000},
    },
    "base": {"model": {"dropout": 0.1}, "train": {"batch_tokens": 25_000, "micro_batches": 8}},
    "big": {
        "model": {"d_model": 1024, "d_ff": 4096, "n_heads": 16, "dropout": 0.3},
        "train": {"batch_tokens": 25_000, "micro_batches": 16, "max_updates": 300_000, "average_checkpoints": 20},
    },
}

LANGUAGE_MODEL: Sections = {  # shared by all decoders and encoders
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

LANGUAGE_MODEL_SIZES: dict[Preset, Sections] = {
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

# Speech recognizers: the sizes of translators, with an encoder that is deeper than the decoder.
SPEECH: Sections = {
    "model": {"pre_norm": True, "activation": "gelu", "features": 80, "dropout": 0.1},
    "train": {
        "embedding_init": "random",
        "sampled_softmax": 0,
        "bpe_dropout": 0.0,
        "ctc_weight": 0.3,
        "freq_masks": 2,
        "time_masks": 2,
        "label_smoothing": 0.1,
    },
}
SPEECH_SIZES: dict[Preset, Sections] = {
    "tiny": {
        "model": {"d_model": 128, "d_ff": 512, "encoder_layers": 4, "decoder_layers": 2},
        "train": {"learning_rate": 4e-3, "warmup": 100, "batch_tokens": 4096, "max_updates": 10_000},
    },
    "small": {"model": {"encoder_layers": 8, "decoder_layers": 4}, "train": {"learning_rate": 3e-3}},
    "base": {"model": {"encoder_layers": 12}, "train": {"clip_norm": 1.0}},
    "big": {"model": {"encoder_layers": 18}, "train": {"clip_norm": 1.0}},
}

# Fine-tuning of a pretrained encoder: few epochs, low learning rate.
FINE_TUNING: dict[str, Any] = {
    "learning_rate": 3e-4,
    "warmup": 50,
    "schedule": "linear",
    "batch_tokens": 2048,
    "max_updates": 1500,
    "patience": 8,
}

# Training of an encoder with labels from nothing.
LABELED_FROM_SCRATCH: dict[str, Any] = FINE_TUNING | {"learning_rate": 1e-3, "warmup": 100}

# Continued training of a translator on other pairs: the learning rate of a first training would undo what it knows.
CONTINUED_TRAINING: dict[str, Any] = {
    "optimizer": "adam",
    "learning_rate": 3e-4,
    "warmup": 100,
    "schedule": "linear",
    "bpe_dropout": 0.0,
    "sampled_softmax": 0,
}

# Baselines: few layers where they are recurrent, low learning rates, gradient clipping.
BASELINE_TRAINING: dict[str, Any] = {
    "embedding_init": "random",
    "bpe_dropout": 0.0,
    "sampled_softmax": 0,
    "optimizer": "adam",
}
CONVOLUTION_TRAINING = BASELINE_TRAINING | {"learning_rate": 1e-3, "warmup": 400, "clip_norm": 0.5}

# Long sources and short targets: more tokens in an update, as few of them are targets.
SUMMARIZATION: Sections = {"train": {"batch_tokens": 8192, "bpe_dropout": 0.0}}

# Denoising of plain text: there are no pairs whose co-occurrence could initialize embeddings.
DENOISING: dict[str, Any] = {
    "embedding_init": "random",
    "bpe_dropout": 0.0,
    "block_size": 128,
    "batch_tokens": 4096,
    "patience": 0,
}

BASELINES: dict[Architecture, Sections] = {
    "transformer": {},
    "rnn": {
        "model": {"encoder_layers": 1, "decoder_layers": 1},
        "train": BASELINE_TRAINING | {"learning_rate": 2e-3, "warmup": 200, "clip_norm": 1.0},
    },
    "conv": {"model": {"positions": "sinusoidal"}, "train": CONVOLUTION_TRAINING},
    "bytenet": {"model": {"encoder_layers": 10, "decoder_layers": 10}, "train": CONVOLUTION_TRAINING},
    "neural-gpu": {"model": {"encoder_layers": 2, "decoder_layers": 2}, "train": CONVOLUTION_TRAINING},
    "memory-network": {
        "model": {"d_model": 64, "encoder_layers": 3, "decoder_layers": 3, "dropout": 0.0},
        "train": BASELINE_TRAINING | {"learning_rate": 5e-3, "warmup": 100, "clip_norm": 1.0, "weight_decay": 0.0},
    },
}


def preset(family: Family, name: Preset, architecture: Architecture = "transformer") -> Sections:
    """The sections of a preset for a family and an architecture."""
    sections = PRESETS[name]
    if family != "encoder-decoder":
        sections = {
            section: LANGUAGE_MODEL[section] | LANGUAGE_MODEL_SIZES[name][section] for section in LANGUAGE_MODEL
        }
        sections["model"] |= {"family": family} | (ENCODER if family == "encoder" else {})
    baseline = BASELINES[architecture]
    return {section: sections.get(section, {}) | baseline.get(section, {}) for section in ("model", "train")}


SELECTABLE: tuple[Preset, ...] = ("tiny", "small", "base")  # by the size of a corpus
PAIRS = (100_000, 1_000_000)  # sentence pairs from which on the second and the third are selected
TOKENS = (3_000_000, 300_000_000)  # tokens of plain text, likewise
SECONDS = (10 * 3600, 300 * 3600)  # of recordings, likewise


def speech_preset(name: Preset) -> Sections:
    """The sections of a preset for a speech recognizer."""
    sections = preset("encoder-decoder", name)
    return {part: sections[part] | SPEECH[part] | SPEECH_SIZES[name][part] for part in ("model", "train")}


def preset_for(size: float, limits: Sequence[int] = PAIRS) -> Preset:
    """The preset for a corpus of this many sentence pairs, or as many TOKENS or SECONDS."""
    return SELECTABLE[bisect(limits, size)]


def weight_decay_for(updates: float, rate: float) -> float:
    """Weight decay for Muon, given the updates per epoch and the peak learning rate.

    With weight decay, weights are an exponential moving average of past updates, whose time scale is best counted in
    epochs (Wang and Aitchison, 2024): at the peak rate, one epoch multiplies old weights by exp(-0.4). Values above
    0.3 are untested.
    """
    return min(0.3, float(f"{0.4 / (rate * updates):.1g}"))


def presets_up_to(largest: Preset) -> Sequence[Preset]:
    """The selectable presets for corpora that may turn out smaller."""
    return SELECTABLE[: SELECTABLE.index(largest) + 1]
