"""The models that the engine knows, and what they consist of; it needs no torch to say so."""

from __future__ import annotations

from collections.abc import Iterator

from heedful.config import ModelConfig
from heedful.ops import tables

POSITIONS = {"sinusoidal": 0, "learned": 0, "rotary": 1, "alibi": 2}  # as they are numbered there


def computes(config: ModelConfig) -> bool:
    """Whether the engine knows such a model: the Transformer of the paper and what is usual today."""
    return (
        config.family == "encoder-decoder"
        and config.architecture == "transformer"
        and config.attention == config.attention_of_decoder == "full"
        and not config.recurrent_depth
        and config.key_width == config.d_head
        and config.positions in POSITIONS
    )


def tensors(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor of such a model, by name, as its modules have them."""
    width = config.d_model
    shapes: dict[str, tuple[int, ...]] = {"embedding.weight": (config.vocab_size, width)}
    if config.output_bias:
        shapes["output_bias"] = (config.vocab_size,)
    if config.tie == "none":
        shapes["output.weight"] = (config.vocab_size, width)
    if config.tie != "all":
        shapes["source_embedding.weight"] = (config.source_vocab_size or config.vocab_size, width)
    for side, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        if config.positions == "learned":
            shapes[f"{side}.position.table"] = (config.max_length, width)
        if config.embedding_norm:
            shapes |= _norm(f"{side}.first_norm", width)
        for layer in range(layers):
            shapes |= _block(config, f"{side}.{layer}", cross=side == "decoder")
        if config.norm == "pre":
            shapes |= _norm(f"{side}.norm", width)
    return shapes


def _block(config: ModelConfig, name: str, cross: bool) -> dict[str, tuple[int, ...]]:
    width, inner = config.d_model, config.d_ff
    matrices = {
        f"{name}.{attention}.{part}": (width, width)
        for attention in ("self", "cross")[: 1 + cross]
        for part in ("query", "key", "value", "output")
    }
    matrices |= {f"{name}.feed.up": (inner, width), f"{name}.feed.down": (width, inner)}
    if config.activation == "swiglu":
        matrices[f"{name}.feed.gate"] = (inner, width)
    shapes: dict[str, tuple[int, ...]] = {f"{each}.weight": shape for each, shape in matrices.items()}
    if config.bias:
        shapes |= {f"{each}.bias": shape[:1] for each, shape in matrices.items()}
    for part in ("self", "cross", "feed") if cross else ("self", "feed"):
        shapes |= _norm(f"{name}.{part}_residual.norm", width)
    return shapes


def _norm(name: str, width: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def position_tables(config: ModelConfig) -> Iterator[tuple[str, tables.Table]]:
    """The tables of positions that are computed and not learned, by name."""
    for side in ("encoder", "decoder"):
        match config.positions:
            case "sinusoidal":
                yield f"{side}.position.table", tables.sinusoids(config.max_length, config.d_model)
            case "rotary":
                yield f"{side}.position.table", tables.turns(config.max_length, config.key_width)
            case "alibi":
                yield f"{side}.position.slopes", tables.alibi_slopes(config.n_heads)
