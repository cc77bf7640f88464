"""Which models the native engine supports, and the position tensors that it needs; imports no torch."""

from __future__ import annotations

from collections.abc import Iterator

from heedful.config import ModelConfig
from heedful.ops import position_tables

POSITIONS = {"sinusoidal": 0, "learned": 0, "rotary": 1, "alibi": 2}  # as numbered in csrc


def supports(config: ModelConfig) -> bool:
    """Whether the engine computes this model: a Transformer with full attention and a usual position scheme."""
    return (
        config.family == "encoder-decoder"
        and config.architecture == "transformer"
        and config.attention == config.attention_of_decoder == "full"
        and not config.universal
        and config.norm == "layer"
        and not config.experts
        and config.key_width == config.d_head
        and config.positions in POSITIONS
    )


def position_tensors(config: ModelConfig) -> Iterator[tuple[str, position_tables.Table]]:
    """The tensors of position schemes that are computed, not learned, by name."""
    for side in ("encoder", "decoder"):
        match config.positions:
            case "sinusoidal":
                yield f"{side}.position.table", position_tables.sinusoids(config.max_length, config.d_model)
            case "rotary":
                yield f"{side}.position.table", position_tables.rotary_table(config.max_length, config.key_width)
            case "alibi":
                yield f"{side}.position.slopes", position_tables.alibi_slopes(config.n_heads)
