"""Maps the settings of a foreign config.json to heedful's: one table, used in both directions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heedful.config import ModelConfig
from heedful.interop.untrusted import ForeignConfig

# Hugging Face's names of activations -> heedful's; of several with the same meaning, the first one is written.
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python": "gelu",
}
LIMITS = {
    **dict.fromkeys(("encoder_layers", "decoder_layers", "n_heads", "features"), (1, 1024)),
    **dict.fromkeys(("max_length", "source_max_length"), (2, 1_048_576)),
    **dict.fromkeys(("pad_id", "bos_id", "eos_id"), (0, 10_000_000)),
    "d_model": (1, 65_536),
    "d_ff": (1, 1_048_576),
    "token_types": (1, 16),
}
# heedful's name -> foreign names divided by spaces, of which all must have one value; and the default, which may be a
# function of the settings before it
Settings = dict[str, tuple[str, int | float | str | Callable[[dict[str, Any]], int]]]


def read_settings(foreign: ForeignConfig, table: Settings, most_positions: int) -> dict[str, Any]:
    """The settings of a foreign model under heedful's names; a position table has `most_positions` numbers at most."""
    values: dict[str, Any] = {}
    for name, (keys, preset) in table.items():
        default: Any = preset(values) if callable(preset) else preset
        first, *others = keys.split()
        for other in others:
            foreign.same(first, other, default)
        least, most = LIMITS.get(name, (1, 10_000_000))
        if name.endswith("max_length"):
            most = min(most, most_positions // values["d_model"])
        if name == "tie":
            values[name] = "all" if foreign.flag(first, default) else "none"
        elif isinstance(default, bool):
            values[name] = foreign.flag(first, default)
        elif isinstance(default, str):
            values[name] = foreign.choice(first, default, ACTIVATIONS)
        elif name == "norm_eps":
            values[name] = foreign.number(first, default, least=1e-30, below=0.1)
        elif isinstance(default, float):
            values[name] = foreign.number(first, default)
        else:
            values[name] = foreign.integer(first, default, least, most)
    return values


def write_settings(config: ModelConfig, table: Settings) -> dict[str, Any]:
    """The settings of a model under their foreign names."""
    values = config.model_dump() | {"tie": config.tie != "none", "source_max_length": config.source_length}
    values["activation"] = next(theirs for theirs, ours in ACTIVATIONS.items() if ours == config.activation)
    return {key: values[name] for name, (keys, _) in table.items() for key in keys.split()}
