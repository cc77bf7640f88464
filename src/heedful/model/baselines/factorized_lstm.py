"""The factorized LSTM, F-LSTM (Kuchaiev & Ginsburg, 2017): an LSTM whose weight matrix is a product of two small ones.

All gates of an LSTM are one affine map W [x; h] + b. With W ≈ W₂ W₁, where W₁ has r rows, a step of n cells takes
r (d + n) + 4 r n multiplications instead of 4 n (d + n). The call and the names follow `torch.nn.LSTM`.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

State = tuple[Tensor, Tensor]


class FactorizedLSTM(nn.Module):
    """One layer, of one direction or of both; batch first."""

    def __init__(
        self, input_size: int, hidden_size: int, rank: int, bidirectional: bool = False, bias: bool = True
    ) -> None:
        super().__init__()
        self.hidden_size, self.bidirectional = hidden_size, bidirectional
        for direction in self._directions:
            shapes = {"weight_in": (rank, input_size + hidden_size), "weight_out": (4 * hidden_size, rank)}
            for name, shape in (shapes | ({"bias": (4 * hidden_size,)} if bias else {})).items():
                weight = torch.empty(*shape)
                nn.init.uniform_(weight, -1 / math.sqrt(shape[-1]), 1 / math.sqrt(shape[-1]))
                self.register_parameter(f"{name}_l0{direction}", nn.Parameter(weight))

    @property
    def _directions(self) -> tuple[str, ...]:
        return ("", "_reverse") if self.bidirectional else ("",)

    def forward(self, x: Tensor | PackedSequence, state: State | None = None) -> tuple[Tensor | PackedSequence, State]:
        """(B, T, D), (1, B, n) twice -> (B, T, n or 2n) and the state after each sequence; or packed sequences."""
        if isinstance(x, PackedSequence):
            padded, lengths = pad_packed_sequence(x, batch_first=True)
            states, last = self._both_ways(padded, lengths.to(padded.device), state)
            return pack_padded_sequence(states, lengths, batch_first=True, enforce_sorted=False), last
        return self._both_ways(x, torch.full((len(x),), x.size(1), device=x.device), state)

    def _both_ways(self, x: Tensor, lengths: Tensor, state: State | None) -> tuple[Tensor, State]:
        states, last = self._run("", x, lengths, state)
        if not self.bidirectional:
            return states, last
        backward, first = self._run("_reverse", _reverse(x, lengths), lengths, state)
        merged = torch.cat((states, _reverse(backward, lengths)), -1)
        return merged, (torch.cat((last[0], first[0])), torch.cat((last[1], first[1])))

    def _run(self, direction: str, x: Tensor, lengths: Tensor, state: State | None) -> tuple[Tensor, State]:
        """(B, T, D) -> (B, T, n): i, f, g, o = W₂ W₁ [x; h] + b; c = σ(f) c + σ(i) tanh(g); h = σ(o) tanh(c)."""
        first, second = (self.get_parameter(f"{name}_l0{direction}") for name in ("weight_in", "weight_out"))
        bias = self._parameters.get(f"bias_l0{direction}")
        of_input, of_state = first[:, : x.size(2)], first[:, x.size(2) :]
        inner = x @ of_input.t()  # (B, T, r): the part of W₁ that needs no state, of all steps at once
        zeros = x.new_zeros(len(x), self.hidden_size)
        h, c = (zeros, zeros) if state is None else (state[0][0], state[1][0])
        states = []
        for step in range(x.size(1)):
            gates = nn.functional.linear(inner[:, step] + h @ of_state.t(), second, bias)
            i, f, g, o = gates.chunk(4, 1)
            new_c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            new_h = o.sigmoid() * new_c.tanh()
            real = (step < lengths).unsqueeze(1)
            h, c = torch.where(real, new_h, h), torch.where(real, new_c, c)
            states.append(new_h * real)
        return torch.stack(states, 1), (h.unsqueeze(0), c.unsqueeze(0))


def _reverse(x: Tensor, lengths: Tensor) -> Tensor:
    """(B, T, D) -> (B, T, D): every sequence backward, padding still on the right."""
    places = torch.arange(x.size(1), device=x.device)
    index = torch.where(places < lengths.unsqueeze(1), lengths.unsqueeze(1) - 1 - places, places)  # (B, T)
    return x.gather(1, index.unsqueeze(2).expand_as(x))
