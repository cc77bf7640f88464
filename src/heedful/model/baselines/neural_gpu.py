"""The Neural GPU (Kaiser & Sutskever, 2015) and the Extended Neural GPU (Kaiser & Bengio, 2016): active memory.

The source is the first row of a memory of n columns, w rows and d_model maps. Convolutional gated recurrent units
(CGRU) change all of it at once, n times. The Neural GPU then reads all outputs off the first row. The Extended Neural
GPU has a decoder: at each step a CGRU changes the memory once more and sees the output tape, on which the tokens so far
are written. Attention selects from a memory that does not change; here the memory changes and nothing is selected.
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.model.baselines.unfolding import count_columns, unfold
from heedful.model.block import LayerStack
from heedful.model.context import Context
from heedful.model.kv_cache import KVCache
from heedful.model.positions import Position
from heedful.ops.dropout import dropout


class CGRU(nn.Module):
    """u ⊙ s + (1 - u) ⊙ tanh(U * (r ⊙ s) + W * p + B), where u and r are gates of the same form.

    * is a 2-D convolution over columns and rows; p is the output tape, in a decoder only. Gates reach 0 and 1 exactly
    (gate cutoff): they are 1.2 σ - 0.1, cut to [0, 1].
    """

    def __init__(self, config: ModelConfig, tape: bool) -> None:
        super().__init__()
        maps, width, bias = config.d_model, config.kernel_width, config.bias
        self.gates = nn.Conv2d(maps, 2 * maps, width, padding=width // 2, bias=bias)
        self.candidate = nn.Conv2d(maps, maps, width, padding=width // 2, bias=bias)
        self.tape = nn.Conv2d(maps, 3 * maps, width, padding=width // 2, bias=False) if tape else None
        if self.gates.bias is not None:
            nn.init.ones_(self.gates.bias)  # the memory changes slowly at first

    def forward(self, s: Tensor, p: Tensor | None = None) -> Tensor:
        """(B, D, n, w) twice -> (B, D, n, w)."""
        maps, gates = s.size(1), self.gates(s)
        written = None if self.tape is None or p is None else self.tape(p)
        if written is not None:
            gates = gates + written[:, : 2 * maps]
        u, r = (1.2 * gates.sigmoid() - 0.1).clamp(0, 1).chunk(2, 1)
        candidate = self.candidate(r * s)
        if written is not None:
            candidate = candidate + written[:, 2 * maps :]
        out: Tensor = u * s + (1 - u) * candidate.tanh()
        return out


class NeuralGPUEncoder(LayerStack):
    """All layers are applied as often as a sequence has columns; then the memory is complete."""

    def __init__(self, config: ModelConfig, n_layers: int, memory: bool = False) -> None:
        super().__init__(config, Position(config, n_layers))
        self.config, self.memory = config, memory
        self.cells = nn.ModuleList(CGRU(config, tape=False) for _ in range(n_layers))

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """(B, S, D) -> (B, S, D), the first row; or, for a decoder, the whole memory, (B, n, w D)."""
        assert context.real is not None
        x, real = self.add_positions(x), context.real
        if self.memory:
            x, real = unfold(x, real, self.config)
        mask, steps = real[:, None, :, None], real.sum(1)  # a row alone takes as many steps as in a batch
        s = F.pad(x.transpose(1, 2).unsqueeze(3), (0, self.config.memory_width - 1)) * mask  # (B, D, n, w)
        for step in range(int(steps.max())):
            new = dropout(s, self.rate, self.training)
            for cell in self.cells:
                new = cell(new) * mask
            s = torch.where((step < steps).view(-1, 1, 1, 1), new, s)
        return s.permute(0, 2, 3, 1).flatten(2) if self.memory else s[..., 0].transpose(1, 2)


class NeuralGPUDecoder(LayerStack):
    """Reads output t off the first row of the memory at column t; beyond the last column it reads the last one."""

    def __init__(self, config: ModelConfig, n_layers: int) -> None:
        super().__init__(config, Position(config, n_layers))
        self.config = config
        self.cells = nn.ModuleList(CGRU(config, tape=True) for _ in range(n_layers if config.autoregressive else 0))

    def start_cache(self, context: Context) -> KVCache:
        """A cache with the memory that the encoder has left, and an empty output tape, (B, D, n, w) each."""
        assert context.memory is not None
        cache, rows = KVCache(1, context.memory_keep), self.config.memory_width
        memory = context.memory.view(*context.memory.shape[:2], rows, -1).permute(0, 3, 1, 2).contiguous()
        cache.layers[0].state = memory, torch.zeros_like(memory)
        return cache

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """(R, T, D) embeddings -> (R, T, D) hidden states; causal without a mask."""
        context = replace(context, cache=context.cache or self.start_cache(context))
        assert context.cache is not None and context.cache.memory_keep is not None
        cache = context.cache.layers[0]
        (memory, tape), start = cache.state, cache.length
        columns = count_columns(context.cache.memory_keep[:, 0, 0], self.config)
        columns = columns.repeat_interleave(len(x) // len(columns))  # (R,)
        places = torch.arange(memory.size(2), device=x.device)
        mask = (places < columns.unsqueeze(1))[:, None, :, None]
        x, hidden = self.add_positions(x, start), []
        for step in range(x.size(1)):
            column = (columns - 1).clamp(max=start + step)  # (R,)
            if self.cells:
                here = (places == column.unsqueeze(1)).unsqueeze(2)  # (R, n, 1)
                first = torch.where(here, x[:, step, None], tape[..., 0].transpose(1, 2)).transpose(1, 2)
                tape = torch.cat((first.unsqueeze(3), tape[..., 1:]), 3)
                for cell in self.cells:
                    memory = cell(memory, tape) * mask
            hidden.append(memory[torch.arange(len(x), device=x.device), :, column, 0])
        cache.advance(x.size(1), memory, tape)
        return torch.stack(hidden, 1)
