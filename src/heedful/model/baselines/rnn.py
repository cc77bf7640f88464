"""The recurrent encoder-decoder that the Transformer replaced: RNN, LSTM or GRU, with or without attention.

The decoder gets one vector for the whole source (Sutskever et al., 2014), or attends to the source before each step
(Bahdanau et al., 2015) or after it (Luong et al., 2015), to all of it or to a window. The cells are `torch.nn`'s, or
factorized ones.
"""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from heedful.config import ModelConfig
from heedful.model.baselines.factorized_lstm import FactorizedLSTM
from heedful.model.baselines.source_attention import RNNSourceAttention, memory_lengths
from heedful.model.block import LayerStack
from heedful.model.context import Context, LayerContext
from heedful.model.kv_cache import KVCache, LayerKVCache
from heedful.model.positions import Position
from heedful.model.spec import CELL_STATES
from heedful.ops.dropout import dropout

CELLS: dict[str, type[nn.RNN] | type[nn.LSTM] | type[nn.GRU]] = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


def build_cells(config: ModelConfig, input_size: int, hidden_size: int, bidirectional: bool = False) -> nn.Module:
    """One layer of the cells that are set."""
    if config.cell == "flstm":
        rank = config.cell_rank or max(1, hidden_size // 2)
        return FactorizedLSTM(input_size, hidden_size, rank, bidirectional, config.bias)
    return CELLS[config.cell](input_size, hidden_size, batch_first=True, bidirectional=bidirectional, bias=config.bias)


class RNNEncoderLayer(nn.Module):
    """One layer of cells over a whole sequence: h_t = f(x_t, h_{t-1}), and the same backward if bidirectional."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width = config.d_model // 2 if config.bidirectional else config.d_model
        self.cells = build_cells(config, config.d_model, width, config.bidirectional)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """(B, S, D), (B,) -> (B, S, D): forward and backward states concatenated; zeros at padding."""
        with torch.autocast(x.device.type, enabled=False):  # not every CPU has bf16 cells
            x = x.to(next(self.parameters()).dtype)
            packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            states, _ = pad_packed_sequence(self.cells(packed)[0], batch_first=True, total_length=x.size(1))
        return states


class RNNEncoder(LayerStack):
    """Layers of cells over the source. The embedding of a masked token is zero."""

    def __init__(self, config: ModelConfig, n_layers: int) -> None:
        super().__init__(config, Position(config, n_layers))
        for index in range(n_layers):
            self.add_module(str(index), RNNEncoderLayer(config))

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """(B, S, D) -> (B, S, D)."""
        assert context.keep is not None
        real = context.keep[:, 0, 0].unsqueeze(2)  # (B, S, 1)
        x, lengths = self.add_positions(x) * real, memory_lengths(context.keep).cpu()
        for index, layer in enumerate(child for child in self.children() if isinstance(child, RNNEncoderLayer)):
            x = layer(dropout(x, self.rate, self.training) if index else x, lengths)
        return x


class RNNDecoderLayer(nn.Module):
    """One layer of causal cells; the first layer of a decoder holds the attention over the source."""

    def __init__(self, config: ModelConfig, input_size: int, cross: bool) -> None:
        super().__init__()
        self.cells = build_cells(config, input_size, config.d_model)
        self.cross = RNNSourceAttention(config) if cross else None

    def forward(self, x: Tensor, cache: LayerKVCache) -> Tensor:
        """(R, T, …) -> (R, T, D); the state in the cache advances."""
        dtype = next(self.cells.parameters()).dtype
        before = tuple(state.to(dtype).unsqueeze(0).contiguous() for state in cache.state)  # (1, R, D) each
        states: Tensor
        with torch.autocast(x.device.type, enabled=False):
            states, after = self.cells(x.to(dtype), (before if len(before) > 1 else before[0]) if before else None)
        cache.advance(x.size(1), *(state.squeeze(0) for state in (after if isinstance(after, tuple) else (after,))))
        return states


class RNNDecoder(LayerStack):
    """Layers of cells over the target, initialized from the encoder's final state; a language model without `cross`.

    With attention the output is tanh(W [c; s]), as in Luong et al.
    """

    def __init__(self, config: ModelConfig, n_layers: int, cross: bool = False) -> None:
        super().__init__(config, Position(config, n_layers))
        width, attention = config.d_model, config.source_attention if cross else "none"
        self.attends_first = attention == "additive"  # attention before a step, as in Bahdanau et al.
        for index in range(n_layers):
            input_size = 2 * width if self.attends_first and index == 0 else width
            self.add_module(str(index), RNNDecoderLayer(config, input_size, cross=index == 0 and attention != "none"))
        self.bidirectional, self.states = config.bidirectional, CELL_STATES[config.cell]
        self.bridge = nn.Linear(width, n_layers * self.states * width, bias=config.bias) if cross else None
        self.combine = nn.Linear(2 * width, width, bias=config.bias) if attention != "none" else None

    @property
    def layers(self) -> list[RNNDecoderLayer]:
        return [child for child in self.children() if isinstance(child, RNNDecoderLayer)]

    @property
    def cross(self) -> RNNSourceAttention | None:
        return self.layers[0].cross

    def start_cache(self, context: Context) -> KVCache:
        """A cache with the initial states of all layers, tanh(W h), where h is the encoder's final state."""
        layers, memory, keep = self.layers, context.memory, context.memory_keep
        cache = KVCache(len(layers), keep)
        if self.bridge is not None and memory is not None and keep is not None:
            states = torch.tanh(self.bridge(_final_state(memory, keep, self.bidirectional))).chunk(len(layers), -1)
            for state, layer in zip(states, cache.layers, strict=True):
                layer.state = state.chunk(self.states, -1)
            if self.cross is not None:
                cache.layers[0].memory = self.cross.project(memory)
        return cache

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """(R, T, D) embeddings -> (R, T, D) hidden states; causal without a mask."""
        cache = context.cache or self.start_cache(context)
        x = self.add_positions(x, cache.length)
        if self.cross is None or self.combine is None:
            return self._run_layers(x, cache)
        first = LayerContext(self.position, memory_keep=cache.memory_keep, cache=cache.layers[0])
        if self.attends_first:
            states, vectors = self._attend_then_step(x, cache, self.cross, first)
        else:
            states = self._run_layers(x, cache)
            weights = self.cross.weigh(states, first)
            combine = self.cross.combine_tapped if self.cross.tapped else self.cross.combine
            vectors = combine(weights, states, first)
        out = torch.tanh(self.combine(torch.cat((vectors, states), -1)))
        return dropout(out, self.rate, self.training)

    def _run_layers(self, x: Tensor, cache: KVCache, hooks: bool = True) -> Tensor:
        for index, (layer, cached) in enumerate(zip(self.layers, cache.layers, strict=True)):
            x = dropout(x, self.rate, self.training) if index else x
            x = layer(x, cached) if hooks else layer.forward(x, cached)
        return x

    def _attend_then_step(
        self, x: Tensor, cache: KVCache, cross: RNNSourceAttention, context: LayerContext
    ) -> tuple[Tensor, Tensor]:
        """Bahdanau's order, token by token: c_t from s_{t-1}, then s_t from x_t and c_t -> s and c, (R, T, D) each."""
        initial = [layer.state for layer in cache.layers]
        weights, vectors, states = [], [], []
        for token in x.chunk(x.size(1), dim=1):  # (R, 1, D)
            last = cache.layers[-1].state[0].unsqueeze(1)  # s_{t-1} of the highest layer
            weights.append(cross.weigh(last, context))  # (B, 1, W, S)
            vectors.append(cross.combine(weights[-1], last, context))
            states.append(self._run_layers(torch.cat((token, vectors[-1]), -1), cache, hooks=False))
        all_vectors = torch.cat(vectors, 1)
        if not any(module._forward_hooks for module in self.modules()):
            return torch.cat(states, 1), all_vectors
        all_weights = torch.stack(weights, 3).flatten(2, 3)  # (B, 1, W * T, S): hooks see all steps at once;
        all_vectors = cross.combine_tapped(all_weights, all_vectors, context)  # they may patch them, so run again
        for layer, state in zip(cache.layers, initial, strict=True):
            layer.advance(-x.size(1), *state)
        return self._run_layers(torch.cat((x, all_vectors), -1), cache), all_vectors


def _final_state(memory: Tensor, keep: Tensor, bidirectional: bool) -> Tensor:
    """(B, S, D) -> (B, D): the forward cells' state at the last token, and the backward cells' at the first."""
    last = memory[torch.arange(len(memory), device=memory.device), memory_lengths(keep) - 1]
    if not bidirectional:
        return last
    half = memory.size(2) // 2
    return torch.cat((last[:, :half], memory[:, 0, half:]), 1)
