"""Small models and batches. Weights are such that no bias is zero, no norm is one and every position is felt."""

from functools import cache

import torch
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.model.transformer import Model, build_model

ACTIVATIONS = ["relu", "gelu", "gelu_tanh", "silu", "swiglu"]
NORMS = ["post", "pre"]
SYSTEMS = {  # what the Transformer replaced and what followed it
    "rnn-additive": {"architecture": "rnn", "cell": "rnn", "source_attention": "additive"},
    "lstm-additive": {"architecture": "rnn", "source_attention": "additive"},
    "lstm-dot": {"architecture": "rnn", "cell": "lstm", "source_attention": "dot"},
    "gru-general": {"architecture": "rnn", "cell": "gru", "source_attention": "general"},
    "gru-none": {"architecture": "rnn", "cell": "gru", "source_attention": "none", "bidirectional": False},
    "conv": {"architecture": "conv"},
    "conv-dilated": {"architecture": "conv", "dilated": True, "positions": "learned", "kernel_width": 5},
    "window": {"attention": "window", "attention_window": 2},
    "window-rotary": {"attention": "window", "attention_window": 9, "positions": "rotary"},
    "window-relative": {"attention": "window", "attention_window": 3, "positions": "relative", "relative_window": 2},
    "sparse": {"attention": "sparse", "attention_window": 1, "attention_global": 2, "attention_stride": 4},
    "sparse-alibi": {"attention": "sparse", "attention_window": 2, "attention_stride": 7, "positions": "alibi"},
    "sparse-relative": {"attention": "sparse", "attention_window": 2, "attention_global": 0, "positions": "relative"},
    "linformer": {"attention": "linformer", "decoder_attention": "full", "attention_rank": 5},
    "linear": {"attention": "linear", "pre_norm": True},
    "linear-rotary": {"attention": "linear", "positions": "rotary", "d_key": 6},
    "universal": {"universal": True},
    "universal-relative": {"universal": True, "pre_norm": True, "positions": "relative"},
    "act_halting": {"universal": True, "act_halting": True, "encoder_layers": 4, "decoder_layers": 3},
    "halting-window": {"universal": True, "act_halting": True, "pre_norm": True, "attention": "window", "n_heads": 2},
    "flstm-concat": {"architecture": "rnn", "cell": "flstm", "cell_rank": 5, "source_attention": "concat"},
    "lstm-local-m": {"architecture": "rnn", "source_attention": "dot", "source_span": "local-m", "source_window": 1},
    "gru-local-p": {
        "architecture": "rnn", "cell": "gru", "source_attention": "general", "source_span": "local-p",
        "source_window": 2,
    },
    "conv-separable": {"architecture": "conv", "separable": True, "dilated": True},
    "rms": {"norm": "rms", "pre_norm": True},
    "batch-norm": {"norm": "batch", "pre_norm": True},
    "instance-norm": {"norm": "instance", "pre_norm": True},
    "bytenet": {"architecture": "bytenet"},
    "bytenet-separable": {"architecture": "bytenet", "separable": True, "kernel_width": 5},
    "neural-gpu": {"architecture": "neural-gpu", "memory_width": 3},
    "experts": {"experts": 4, "activation": "swiglu"},
    "experts-universal": {"experts": 3, "experts_per_token": 1, "universal": True, "pre_norm": True},
}  # fmt: skip


def families(shape: dict[str, object]) -> list[str]:
    """The families that a system can be."""
    if shape.get("norm") == "instance" or shape.get("architecture") == "neural-gpu":
        return ["encoder-decoder", "encoder"]
    return ["encoder-decoder", "encoder", "decoder"]


def small(**changes) -> ModelConfig:
    if changes.get("family") == "encoder":
        changes.pop("decoder_attention", None)
    sizes = {"vocab_size": 19, "d_model": 16, "d_ff": 24, "n_heads": 4, "encoder_layers": 2, "decoder_layers": 2}
    return ModelConfig(**sizes | {"max_length": 80} | changes)


def stir(module: nn.Module, seed: int = 0) -> nn.Module:
    """Random numbers in whatever starts at zero, one or almost zero; double precision; no dropout."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() == 1:
                parameter.add_(0.3 * noise)
            elif name.endswith("table"):
                parameter.copy_(0.5 * noise)
    return module.double().eval()


def fresh(config: ModelConfig, seed: int = 0) -> Model:
    torch.manual_seed(seed)
    return stir(build_model(config), seed)


@cache
def shared(config: ModelConfig, seed: int = 0) -> Model:
    """A model that no test may change."""
    return fresh(config, seed).requires_grad_(False)


def sentences(lengths: list[int], seed: int = 0, start: int | None = None, width: int = 0, pad: int = 0) -> Tensor:
    """(B, longest or `width`) random ids from 4 to 18, padded on the right, opened by `start` if given."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.full((len(lengths), max(*lengths, width)), pad)
    for row, length in zip(ids, lengths, strict=True):
        row[:length] = torch.randint(4, 19, (length,), generator=generator)
    if start is not None:
        ids[:, 0] = start
    return ids


def pad_right(ids: Tensor, columns: int, pad: int = 0) -> Tensor:
    return nn.functional.pad(ids, (0, columns), value=pad)


def another(ids: Tensor) -> Tensor:
    """Other tokens, real ones too."""
    return 4 + (ids - 3) % 15
