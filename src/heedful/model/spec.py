"""The tensor spec: name and shape of every tensor of every model, without torch.

Model folders, the native engine and the converters read it, and a test holds the torch modules equal to it. The order
is that of the data flow; of layers that share their weights, only the first is listed.
"""

from __future__ import annotations

from collections.abc import Sequence

from heedful.config import ModelConfig

Shapes = dict[str, tuple[int, ...]]
FRONT_END_KERNEL = 3  # frames that a convolution over audio reads
GATES = {"rnn": 1, "gru": 3, "lstm": 4, "flstm": 4}  # gates of a recurrent cell
CELL_STATES = {"rnn": 1, "gru": 1, "lstm": 2, "flstm": 2}  # state vectors: hidden, and cell state for an LSTM


def tensor_spec(config: ModelConfig) -> Shapes:
    """The shape of every saved tensor, by name."""
    vocab, width, family = config.vocab_size, config.d_model, config.family
    spec: Shapes = {"embedding.weight": (vocab, width)}
    if config.features:
        spec |= _front_end(config)
    elif family == "encoder-decoder" and config.tie != "all":
        spec["source_embedding.weight"] = (config.source_vocab_size or vocab, width)
    if family == "encoder" and config.token_types:
        spec["token_types.weight"] = (config.token_types, width)
    if family != "decoder":
        source = config.model_copy(update={"max_length": config.source_length})
        spec |= _stack(source, "encoder", config.encoder_layers, cross=False)
    if family != "encoder":
        spec |= _stack(config, "decoder", config.decoder_layers, cross=family == "encoder-decoder")
    if family == "encoder":
        spec |= _encoder_heads(config)
    if config.ctc:
        spec |= _linear("ctc", vocab, width)
    if config.pointer:
        spec |= _linear("pointer.query", width, width) | _linear("pointer.key", width, width)
        spec |= _linear("pointer.gate", 1, width)
    if config.tie == "none":
        spec["output.weight"] = (vocab, width)
    if config.output_bias:
        spec["output_bias"] = (vocab,)
    return spec


def _front_end(config: ModelConfig) -> Shapes:
    """The convolutions that read audio frames."""
    width, kernel = config.d_model, FRONT_END_KERNEL
    first = {"front_end.first.weight": (width, config.features, kernel), "front_end.first.bias": (width,)}
    return first | {"front_end.second.weight": (width, width, kernel), "front_end.second.bias": (width,)}


def _encoder_heads(config: ModelConfig) -> Shapes:
    """The heads of a BERT: the transform before the logits, the pooler, the classifier."""
    width = config.d_model
    spec: Shapes = {}
    if config.head == "transform":
        spec |= _linear("transform.dense", width, width, config.bias) | _norm("transform.norm", width)
    if config.pooler:
        spec |= _linear("pooler", width, width, config.bias)
    if config.labels:
        spec |= _linear("classifier", len(config.labels), width)
    return spec


def _stack(config: ModelConfig, name: str, layers: int, cross: bool) -> Shapes:
    """The layers of an encoder or decoder, with the positions and norms of the whole stack."""
    spec: Shapes = {}
    if config.has_positions:
        spec |= _positions(config, f"{name}.position", layers)
    if config.embedding_norm:
        spec |= _norm(f"{name}.first_norm", config.d_model)
    layer_of = LAYERS[config.architecture]
    where = f"{name}.cells" if config.architecture == "neural-gpu" else name
    for index in range(1 if config.universal else layers):
        spec |= layer_of(config, f"{where}.{index}", index, cross)
    if config.architecture == "rnn" and cross:
        spec |= _rnn_decoder(config, name, layers)
    if config.architecture == "memory-network":
        spec |= _memory_network(config, name, layers)
    if config.architecture == "bytenet" and name == "decoder":
        spec |= _linear(f"{name}.combine", config.d_model, 2 * config.d_model, config.bias) if cross else {}
        spec |= _norm(f"{name}.last_norm", config.d_model)
    if config.act_halting:
        spec |= _linear(f"{name}.halt", 1, config.d_model)
    if config.architecture == "transformer" and config.pre_norm:
        spec |= _sublayer_norm(config, f"{name}.norm")
    return spec


def _positions(config: ModelConfig, name: str, layers: int) -> Shapes:
    if config.positions == "syntax" and name.startswith("encoder"):
        spec = _linear(f"{name}.sequence", config.d_model, config.d_model, bias=False)
        spec |= _linear(f"{name}.structure", config.d_model, config.d_model, bias=False)
        shape = 2 * config.relative_window + 1, config.key_width
        return {f"{name}.relative_{index}": shape for index in range(layers)} | spec
    if config.positions == "learned":
        return {f"{name}.table": (config.max_length, config.d_model)}
    if config.positions == "relative":
        table = 2 * config.relative_window + 1, config.key_width
        return {f"{name}.{index}.table": table for index in range(layers)}
    return {}


def _block(config: ModelConfig, name: str, index: int, cross: bool) -> Shapes:
    """One Transformer block: self-attention, cross-attention, feed-forward."""
    causal = name.startswith("decoder")
    spec = _attention(config, f"{name}.self")
    if (config.attention_of_decoder if causal else config.attention) == "linformer":
        mix = config.attention_rank, config.max_length
        spec |= {f"{name}.self.mix_keys": mix, f"{name}.self.mix_values": mix}
    spec |= _sublayer_norm(config, f"{name}.self_residual.norm")
    if cross:
        spec |= _attention(config, f"{name}.cross") | _sublayer_norm(config, f"{name}.cross_residual.norm")
    if config.experts:
        gating = config.experts, config.d_model
        spec |= {f"{name}.feed.gating": gating, f"{name}.feed.noise": gating}
    for feed in [f"feed.experts.{index}" for index in range(config.experts)] or ["feed"]:
        spec |= _feed_forward(config, f"{name}.{feed}")
    return spec | _sublayer_norm(config, f"{name}.feed_residual.norm")


def _feed_forward(config: ModelConfig, name: str) -> Shapes:
    spec: Shapes = {}
    for matrix in ("up", "gate") if config.activation == "swiglu" else ("up",):
        spec |= _linear(f"{name}.{matrix}", config.d_ff, config.d_model, config.bias)
    return spec | _linear(f"{name}.down", config.d_model, config.d_ff, config.bias)


def _sublayer_norm(config: ModelConfig, name: str) -> Shapes:
    """The norm of the kind that is set; a batch norm saves its running statistics."""
    kind = config.norm_of_decoder if name.startswith("decoder") else config.norm
    parts = {"rms": ("weight",), "batch": ("weight", "bias", "running_mean", "running_var")}
    return {f"{name}.{part}": (config.d_model,) for part in parts.get(kind, ("weight", "bias"))}


def _attention(config: ModelConfig, name: str) -> Shapes:
    keys, width = config.n_heads * config.key_width, config.d_model
    spec: Shapes = {}
    for part, rows in (("query", keys), ("key", keys), ("value", width), ("output", width)):
        spec |= _linear(f"{name}.{part}", rows, width, config.bias)
    return spec


def _recurrent(config: ModelConfig, name: str, index: int, cross: bool) -> Shapes:
    """One layer of recurrent cells, in torch.nn's naming; the first of a decoder may hold the cross-attention."""
    width, encoder = config.d_model, name.startswith("encoder")
    attention = config.source_attention if cross else "none"
    hidden = width // 2 if encoder and config.bidirectional else width
    input_size = 2 * width if attention == "additive" and index == 0 else width
    spec: Shapes = {}
    for direction in ("", "_reverse") if encoder and config.bidirectional else ("",):
        rows = GATES[config.cell] * hidden
        if config.cell == "flstm":
            rank = config.cell_rank or max(1, hidden // 2)
            spec |= {
                f"{name}.cells.weight_in_l0{direction}": (rank, input_size + hidden),
                f"{name}.cells.weight_out_l0{direction}": (rows, rank),
            }
            spec |= {f"{name}.cells.bias_l0{direction}": (rows,)} if config.bias else {}
            continue
        spec |= {
            f"{name}.cells.weight_ih_l0{direction}": (rows, input_size),
            f"{name}.cells.weight_hh_l0{direction}": (rows, hidden),
        }
        if config.bias:
            spec |= {f"{name}.cells.bias_{part}_l0{direction}": (rows,) for part in ("ih", "hh")}
    if index == 0:
        parts: dict[str, Sequence[tuple[str, int]]] = {
            "additive": (("query", width), ("key", width), ("value", 1)),
            "concat": (("query", width), ("key", width), ("value", 1)),
            "general": (("key", width),),
        }
        spec |= {f"{name}.cross.{part}.weight": (rows, width) for part, rows in parts.get(attention, ())}
        if attention != "none" and config.source_span == "local-p":
            spec |= {f"{name}.cross.center.weight": (width, width), f"{name}.cross.center_value.weight": (1, width)}
    return spec


def _rnn_decoder(config: ModelConfig, name: str, layers: int) -> Shapes:
    """The bridge from the encoder's final state to the decoder's initial ones, and the output layer of attention."""
    width = config.d_model
    states = layers * CELL_STATES[config.cell] * width
    spec = _linear(f"{name}.bridge", states, width, config.bias)
    return spec | (
        _linear(f"{name}.combine", width, 2 * width, config.bias) if config.source_attention != "none" else {}
    )


def _convolution(config: ModelConfig, name: str, index: int, cross: bool) -> Shapes:
    width = config.d_model
    inner = name if name.startswith("encoder") else f"{name}.convolution"
    spec = _convolve(config, f"{inner}.convolve", 2 * width, width)
    return spec | (_linear(f"{name}.cross.query", width, width, config.bias) if cross else {})


def _bytenet_block(config: ModelConfig, name: str, index: int, cross: bool) -> Shapes:
    width, inner = config.d_model, config.d_model // 2
    spec = _norm(f"{name}.first_norm", width) | _norm(f"{name}.norm", inner) | _norm(f"{name}.last_norm", inner)
    spec |= _linear(f"{name}.reduce", inner, width, config.bias)
    spec |= _convolve(config, f"{name}.convolution.convolve", inner, inner)
    return spec | _linear(f"{name}.expand", width, inner, config.bias)


def _cgru(config: ModelConfig, name: str, index: int, cross: bool) -> Shapes:
    """A convolutional gated recurrent unit; in a decoder, with the convolution of the output tape."""
    if cross and not config.autoregressive:
        return {}
    maps, kernel = config.d_model, (config.kernel_width, config.kernel_width)
    spec: Shapes = {}
    for part, rows in (("gates", 2 * maps), ("candidate", maps)):
        spec[f"{name}.{part}.weight"] = rows, maps, *kernel
        spec |= {f"{name}.{part}.bias": (rows,)} if config.bias else {}
    return spec | ({f"{name}.tape.weight": (3 * maps, maps, *kernel)} if cross else {})


def _hop(config: ModelConfig, name: str, index: int, cross: bool) -> Shapes:
    return {}  # hops share the weights of the stack


def _memory_network(config: ModelConfig, name: str, layers: int) -> Shapes:
    """The embeddings of memories besides those of the vocabulary, and the temporal encoding."""
    width, table = config.d_model, (config.vocab_size, config.d_model)
    if name == "encoder":
        return {f"{name}.tables": (layers, *table), f"{name}.temporal": (layers + 1, config.memory_size, width)}
    spec: Shapes = {f"{name}.table": table, f"{name}.temporal": (2, config.memory_size, width)}
    return spec | _linear(f"{name}.mapping", width, width, bias=False)


def _convolve(config: ModelConfig, name: str, rows: int, columns: int) -> Shapes:
    """A convolution, or a separable one: a kernel per channel, and a product over channels."""
    spec: Shapes = {}
    kernel = config.kernel_width
    if config.separable:
        spec[f"{name}.depthwise.weight"] = columns, 1, kernel
        name, kernel = f"{name}.pointwise", 1
    spec[f"{name}.weight"] = rows, columns, kernel
    return spec | ({f"{name}.bias": (rows,)} if config.bias else {})


def _linear(name: str, rows: int, columns: int, bias: bool = True) -> Shapes:
    return {f"{name}.weight": (rows, columns)} | ({f"{name}.bias": (rows,)} if bias else {})


def _norm(name: str, width: int) -> Shapes:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


LAYERS = {
    "transformer": _block,
    "rnn": _recurrent,
    "conv": _convolution,
    "bytenet": _bytenet_block,
    "neural-gpu": _cgru,
    "memory-network": _hop,
}
