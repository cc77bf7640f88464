"""The recurrent encoder-decoder that the Transformer replaced: RNN, LSTM or GRU, with or without attention.

Sutskever et al. (2014) give the decoder one vector for the whole source; Bahdanau et al. (2015) let it look at the
source before each step, and Luong et al. (2015) after it. The cells are `torch.nn`'s.
"""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from heedful.config import ModelConfig
from heedful.model.attention.multi_head import TAPS, Heads
from heedful.model.block import Layers
from heedful.model.cache import Cache, LayerCache
from heedful.model.positions import Position
from heedful.ops.dropout import dropout

CELLS: dict[str, type[nn.RNN] | type[nn.LSTM] | type[nn.GRU]] = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}
STATES = {"rnn": 1, "lstm": 2, "gru": 1}  # vectors that a cell carries from step to step


class RNNEncoderLayer(nn.Module):
    """One layer of cells that has the whole sequence: h_t = f(x_t, h_{t-1}), and the same from the end."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width = config.d_model // 2 if config.bidirectional else config.d_model
        self.cells = CELLS[config.cell](
            config.d_model, width, batch_first=True, bidirectional=config.bidirectional, bias=config.bias
        )

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """(B, S, D), (B,) -> (B, S, D): forward states beside backward ones; zeros behind the end."""
        with torch.autocast(x.device.type, enabled=False):  # not every processor has cells in bfloat16
            x = x.to(next(self.parameters()).dtype)
            packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            states, _ = pad_packed_sequence(self.cells(packed)[0], batch_first=True, total_length=x.size(1))
        return states


class RNNEncoder(Layers):
    """Layers of cells over the source. A token that is hidden is a vector of zeros."""

    def __init__(self, config: ModelConfig, n_layers: int) -> None:
        super().__init__(config, Position(config, n_layers))
        for index in range(n_layers):
            self.add_module(str(index), RNNEncoderLayer(config))

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        """(B, S, D), (B, 1, 1, S) -> (B, S, D)."""
        real = keep[:, 0, 0].unsqueeze(2)  # (B, S, 1)
        x, lengths = self.enter(x) * real, _lengths(keep).cpu()
        for index, layer in enumerate(child for child in self.children() if isinstance(child, RNNEncoderLayer)):
            x = layer(dropout(x, self.rate, self.training) if index else x, lengths)
        return x


class RNNSourceAttention(Heads):
    """One head over the states h_j of the encoder; c = Σ softmax(score(s, h_j)) h_j is what the decoder gets.

    score is vᵀ tanh(W s + U h_j) (additive), s · h_j (dot) or s · W h_j (general).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(1, taps=TAPS[1:])  # a query is a state, which has its name as what a layer gives
        width, self.score, self.rate = config.d_model, config.source_attention, config.attention_dropout
        self.query = nn.Linear(width, width, bias=False) if self.score == "additive" else None
        self.key = nn.Linear(width, width, bias=False) if self.score != "dot" else None
        self.value = nn.Linear(width, 1, bias=False) if self.score == "additive" else None

    def project(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """(B, S, D) -> U h or W h, and h itself, (B, 1, S, D)."""
        key, value = (memory if self.key is None else self.key(memory)).unsqueeze(1), memory.unsqueeze(1)
        if any(self._listeners):
            key, value = self._tap("keys", memory)(key), self._tap("values", memory)(value)
        return key, value

    def weigh(self, state: Tensor, memory: tuple[Tensor, Tensor], keep: Tensor) -> Tensor:
        """(R, T, D) -> (B, 1, W * T, S): the weights of the source for every state, R / B rows to a sentence."""
        key = memory[0]
        query = state.reshape(key.size(0), 1, -1, state.size(-1))  # (B, 1, W * T, D)
        query = query if self.query is None else self.query(query)
        if self.value is None:
            scores = query @ key.transpose(2, 3)
        else:
            scores = self.value(torch.tanh(query.unsqueeze(3) + key.unsqueeze(2))).squeeze(4)
        return scores.masked_fill(~keep, -torch.inf).softmax(-1)

    def gather(self, weights: Tensor, memory: tuple[Tensor, Tensor], state: Tensor) -> Tensor:
        """(B, 1, W * T, S) -> (R, T, D): the context of every row."""
        return (dropout(weights, self.rate, self.training) @ memory[1]).view_as(state)

    def shown(self, weights: Tensor, memory: tuple[Tensor, Tensor], state: Tensor) -> Tensor:
        """The same for a listener, who may replace weights and context."""
        context = self.gather(self._tap("weights", state)(weights), memory, state).unsqueeze(1)  # (R, 1, T, D)
        return self._tap("heads", state)(context).squeeze(1)

    @property
    def listened(self) -> bool:
        return any(self._listeners)


class RNNDecoderLayer(nn.Module):
    """One layer of cells that goes from token to token; the first one has the attention, whenever it is asked."""

    def __init__(self, config: ModelConfig, given: int, cross: bool) -> None:
        super().__init__()
        self.cells = CELLS[config.cell](given, config.d_model, batch_first=True, bias=config.bias)
        self.cross = RNNSourceAttention(config) if cross else None

    def forward(self, x: Tensor, cache: LayerCache) -> Tensor:
        """(R, T, …) -> (R, T, D), and the state goes on."""
        dtype = next(self.cells.parameters()).dtype
        before = tuple(each.to(dtype).unsqueeze(0).contiguous() for each in cache.state)  # (1, R, D) each
        states: Tensor
        with torch.autocast(x.device.type, enabled=False):
            states, after = self.cells(x.to(dtype), (before if len(before) > 1 else before[0]) if before else None)
        cache.advance(x.size(1), *(each.squeeze(0) for each in (after if isinstance(after, tuple) else (after,))))
        return states


class RNNDecoder(Layers):
    """Layers of cells over the target, which begin where the encoder ended; without a memory, a language model.

    With attention the output is tanh(W [c; s]), as Luong et al. have it.
    """

    def __init__(self, config: ModelConfig, n_layers: int, cross: bool = False) -> None:
        super().__init__(config, Position(config, n_layers))
        width, attention = config.d_model, config.source_attention if cross else "none"
        self.before = attention == "additive"  # look at the source before a step
        for index in range(n_layers):
            given = 2 * width if self.before and index == 0 else width
            self.add_module(str(index), RNNDecoderLayer(config, given, cross=index == 0 and attention != "none"))
        self.bidirectional, self.states = config.bidirectional, STATES[config.cell]
        self.bridge = nn.Linear(width, n_layers * self.states * width, bias=config.bias) if cross else None
        self.combine = nn.Linear(2 * width, width, bias=config.bias) if attention != "none" else None

    @property
    def layers(self) -> list[RNNDecoderLayer]:
        return [child for child in self.children() if isinstance(child, RNNDecoderLayer)]

    @property
    def cross(self) -> RNNSourceAttention | None:
        return self.layers[0].cross

    def start(self, memory: Tensor | None = None, memory_keep: Tensor | None = None) -> Cache:
        """(B, S, D) -> a cache: the first states of all layers, tanh(W h), h being where the encoder ended."""
        layers = self.layers
        cache = Cache(len(layers), memory_keep)
        if self.bridge is not None and memory is not None and memory_keep is not None:
            states = torch.tanh(self.bridge(_ended(memory, memory_keep, self.bidirectional))).chunk(len(layers), -1)
            for state, layer in zip(states, cache.layers, strict=True):
                layer.state = state.chunk(self.states, -1)
            if self.cross is not None:
                cache.layers[0].memory = self.cross.project(memory)
        return cache

    def forward(
        self,
        x: Tensor,
        keep: Tensor | None,
        memory: Tensor | None = None,
        memory_keep: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """(R, T, D) embeddings -> (R, T, D) hidden states; `keep` is not needed, since cells cannot look ahead."""
        cache = cache or self.start(memory, memory_keep)
        x = self.enter(x, cache.length)
        if self.cross is None or self.combine is None:
            return self._through(x, cache)
        projected, source_keep = cache.layers[0].memory, cache.source_keep
        assert projected is not None and source_keep is not None
        if self.before:
            states, context = self._look_then_step(x, cache, self.cross, projected, source_keep)
        else:
            states = self._through(x, cache)
            weights = self.cross.weigh(states, projected, source_keep)
            gather = self.cross.shown if self.cross.listened else self.cross.gather
            context = gather(weights, projected, states)
        out = torch.tanh(self.combine(torch.cat((context, states), -1)))
        return dropout(out, self.rate, self.training)

    def _through(self, x: Tensor, cache: Cache, unheard: bool = False) -> Tensor:
        for index, (layer, own) in enumerate(zip(self.layers, cache.layers, strict=True)):
            x = dropout(x, self.rate, self.training) if index else x
            x = layer.forward(x, own) if unheard else layer(x, own)
        return x

    def _look_then_step(
        self, x: Tensor, cache: Cache, cross: RNNSourceAttention, memory: tuple[Tensor, Tensor], keep: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Bahdanau's order, one token after the other: c_t from s_{t-1}, then s_t from x_t and c_t -> s and c."""
        begun = [layer.state for layer in cache.layers]
        weights, contexts, states = [], [], []
        for token in x.chunk(x.size(1), dim=1):  # (R, 1, D)
            last = cache.layers[-1].state[0].unsqueeze(1)  # s_{t-1} of the highest layer
            weights.append(cross.weigh(last, memory, keep))  # (B, 1, W, S)
            contexts.append(cross.gather(weights[-1], memory, last))
            states.append(self._through(torch.cat((token, contexts[-1]), -1), cache, unheard=True))
        context = torch.cat(contexts, 1)
        if not any(module._forward_hooks for module in self.modules()):
            return torch.cat(states, 1), context
        whole = torch.stack(weights, 3).flatten(2, 3)  # (B, 1, W * T, S): a listener hears all steps at once,
        context = cross.shown(whole, memory, context)  # and since it may change them, the steps are made again
        for layer, state in zip(cache.layers, begun, strict=True):
            layer.advance(-x.size(1), *state)
        return self._through(torch.cat((x, context), -1), cache), context


def _lengths(keep: Tensor) -> Tensor:
    """(B, 1, 1, S) -> (B,): the place behind the last real token; at least one."""
    places = torch.arange(1, keep.size(3) + 1, device=keep.device)
    return (keep[:, 0, 0] * places).amax(1).clamp(min=1)


def _ended(memory: Tensor, keep: Tensor, bidirectional: bool) -> Tensor:
    """(B, S, D) -> (B, D): the forward cells' state at the last token, and the backward cells' at the first."""
    last = memory[torch.arange(len(memory), device=memory.device), _lengths(keep) - 1]
    if not bidirectional:
        return last
    half = memory.size(2) // 2
    return torch.cat((last[:, :half], memory[:, 0, half:]), 1)
