"""End-to-End Memory Networks (Sukhbaatar et al., 2015): several hops of attention over a memory, before self-attention.

As an encoder it answers a question about a text: each sentence is one memory, the last sentence is the question, and
every hop reads the memories and adds what it found to the question. As a decoder it is a language model: each of the
last N tokens is a memory, and the question is a constant.
"""

import torch
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.model.attention.multi_head import Attention
from heedful.model.block import LayerStack
from heedful.model.context import Context
from heedful.model.kv_cache import KVCache
from heedful.model.positions import Position
from heedful.model.sentences import SentenceSums, position_encoding, sentence_numbers, word_places

FIRST_STATE = 0.1  # all elements of the question of a language model


class Hop(nn.Module):
    """One reading of the memory; its weights pass a tap under the name of self-attention, which `explain` shows."""

    def __init__(self) -> None:
        super().__init__()
        self.self = Attention(1, taps=("weights",))

    def tapped(self, weights: Tensor) -> Tensor:
        """(B, T, S) -> (B, T, S)."""
        return self.self.get_submodule("weights")(weights.unsqueeze(1)).squeeze(1) if self.self.tapped else weights


def noisy_times(counts: Tensor, noise: float) -> Tensor:
    """(B,) -> (B, M): the times of M memories, the latest first, with up to `noise` times as many empty ones between.

    The paper's random noise: the temporal encoding does not overfit.
    """
    empty = (torch.rand_like(counts, dtype=torch.float) * ((counts * noise).ceil() + 1)).long()  # (B,)
    most = int(counts.max())
    places = torch.rand(len(counts), most + int(empty.max()), device=counts.device)
    outside = torch.arange(places.size(1), device=counts.device) >= (counts + empty).unsqueeze(1)
    order = places.masked_fill(outside, 2).argsort(1)[:, :most]  # a random choice of places for the memories
    beyond = torch.arange(most, device=counts.device) >= counts.unsqueeze(1)
    return order.masked_fill(beyond, places.size(1)).sort(1).values


class MemoryEncoder(LayerStack):
    """p_i = softmax(u · m_i), o = Σ p_i c_i, u ← u + o, for each hop; u starts as the embedded question.

    m and c are sums of word embeddings, weighted by position encoding, plus the temporal encoding of a sentence. Hops
    share embeddings as neighbors: the c of a hop is the m of the next (adjacent weight tying). With `linear`, hops have
    no softmax: training may start so (the paper's linear start).
    """

    def __init__(self, config: ModelConfig, n_layers: int) -> None:
        super().__init__(config, Position(config, n_layers))
        self.config, width = config, config.d_model
        self.linear = False
        self.tables = nn.Parameter(torch.empty(n_layers, config.vocab_size, width))  # C of every hop
        self.temporal = nn.Parameter(torch.empty(n_layers + 1, config.memory_size, width))
        nn.init.normal_(self.tables, std=width**-0.5)
        nn.init.normal_(self.temporal, std=width**-0.5)
        for index in range(n_layers):
            self.add_module(str(index), Hop())

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """(B, S, D) -> (B, S, D): the state after the last hop, the same at every position."""
        assert context.ids is not None and context.real is not None
        numbers = sentence_numbers(context.ids, context.real, self.config)  # (B, S)
        place, words = word_places(numbers)
        encoding = position_encoding(place.to(x.dtype) / words, x.size(2))
        last = numbers.amax(1, keepdim=True)
        question = ((numbers == last) & (numbers > 0)).unsqueeze(2)
        x = self.add_positions(x) * encoding
        state = (x * question).sum(1)  # u, (B, D)
        age = (last - 1 - numbers).masked_fill(numbers == 0, -1)
        memories = SentenceSums(age, (last - 1).clamp(0, self.config.memory_size))
        times = self._times(memories.counts)
        tables, member = self.tables.transpose(0, 1).flatten(1), memories.member  # (V, L · D): all hops at once
        vectors = nn.functional.embedding(context.ids[member], tables).view(-1, len(self.tables), x.size(2))
        vectors = torch.cat((x[member], (vectors * encoding[member].unsqueeze(1)).flatten(1)), 1)  # (N, (L + 1) · D)
        sums = memories.sums(vectors) + nn.functional.embedding(times, self.temporal.transpose(0, 1).flatten(1))
        sums = sums.view(*sums.shape[:2], len(self.temporal), x.size(2))
        memory, *others = sums.unbind(2)  # m of the first hop, c of all hops
        for index, values in enumerate(others):
            scores = (memory @ state.unsqueeze(2)).squeeze(2)  # (B, M)
            if not self.linear:
                scores = scores.masked_fill(~memories.exist, torch.finfo(scores.dtype).min).softmax(1)
            weights = self._tap(index, scores * memories.exist, memories)
            state, memory = state + (weights.unsqueeze(1) @ values).squeeze(1), values
        return state.unsqueeze(1).expand_as(x)

    def _times(self, counts: Tensor) -> Tensor:
        """(B,) -> (B, M), or (1, M) if they are the same for all: the index of a memory's temporal encoding."""
        if self.training and self.config.memory_noise:
            return noisy_times(counts, self.config.memory_noise).clamp(max=self.config.memory_size - 1)
        return torch.arange(int(counts.max()), device=counts.device).unsqueeze(0)

    def _tap(self, index: int, weights: Tensor, memories: SentenceSums) -> Tensor:
        """(B, M) -> (B, M): a tap sees (B, 1, S, S), the weight of a sentence divided among its words."""
        hop = self.get_submodule(str(index))
        assert isinstance(hop, Hop)
        if not hop.self.tapped:
            return weights
        words = hop.tapped(memories.share(weights).unsqueeze(1).expand(-1, memories.member.size(1), -1))[:, 0]
        return memories.sums(words[memories.member].unsqueeze(1)).squeeze(2)


class MemoryDecoder(LayerStack):
    """A language model: u ← H u + Σ p_i (c_i + T_C), with ReLU on half of u; all hops share their weights.

    The memories of a token are itself and the tokens before it, N in all; T is indexed by distance.
    """

    def __init__(self, config: ModelConfig, n_layers: int) -> None:
        super().__init__(config, Position(config, n_layers))
        width, self.size = config.d_model, config.memory_size
        self.table = nn.Parameter(torch.empty(config.vocab_size, width))  # C
        self.temporal = nn.Parameter(torch.empty(2, config.memory_size, width))  # T_A and T_C
        self.mapping = nn.Linear(width, width, bias=False)  # H
        nn.init.normal_(self.table, std=width**-0.5)
        nn.init.normal_(self.temporal, std=width**-0.5)
        for index in range(n_layers):
            self.add_module(str(index), Hop())

    def start_cache(self, context: Context) -> KVCache:
        """A KV cache without tokens: all hops read the same memories."""
        return KVCache(1)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """(R, T, D) embeddings -> (R, T, D) hidden states."""
        assert context.ids is not None
        key, value = self.add_positions(x), nn.functional.embedding(context.ids, self.table).to(x.dtype)
        if context.cache:
            keys, values = context.cache.layers[0].append(key.unsqueeze(1), value.unsqueeze(1))
            key, value = keys.squeeze(1), values.squeeze(1)
        places = torch.arange(key.size(1), device=x.device)
        distance = places[key.size(1) - x.size(1) :, None] - places  # (T, S)
        keep = (distance >= 0) & (distance < self.size)
        if context.keep is not None:
            keep = keep & context.keep.squeeze(1)  # left padding of a joined cache
        state = torch.full_like(x, FIRST_STATE)
        for hop in (child for child in self.children() if isinstance(child, Hop)):
            state = self._read(hop, state, (key, value), distance, keep)
        return state

    def _read(self, hop: Hop, state: Tensor, memory: tuple[Tensor, Tensor], distance: Tensor, keep: Tensor) -> Tensor:
        """(R, T, D) -> (R, T, D): one hop."""
        key, value = memory
        index = distance.clamp(0, self.size - 1).expand(len(state), -1, -1)  # (R, T, S)
        scores = state @ key.transpose(1, 2) + (state @ self.temporal[0].t()).gather(2, index)
        weights = hop.tapped(scores.masked_fill(~keep, -torch.inf).softmax(-1))
        by_distance = torch.zeros(*state.shape[:2], self.size, dtype=weights.dtype, device=weights.device)
        by_distance = by_distance.scatter_add(2, index, weights)
        state = self.mapping(state) + weights @ value + by_distance @ self.temporal[1]
        linear, other = state.tensor_split(2, dim=2)
        return torch.cat((linear, other.relu()), 2)
