"""The KV cache: keys and values of the tokens decoded so far. It belongs to the caller, never to a module.

The keys and values of the source are projected once and shared by all beams of a sentence: the beams are additional
query rows over one memory. Only the keys and values of the target are stored per row; a recurrent layer stores a state
of fixed size instead. Rows of different lengths end at the same step, so shorter rows are padded on the left.
"""

from __future__ import annotations

import torch
from torch import Tensor

from heedful.model.pointer import CopySource

GROWTH = 32  # steps by which a full buffer grows


class LayerKVCache:
    """Keys and values of one decoder layer, or the state of a recurrent one."""

    def __init__(self) -> None:
        self.buffers: tuple[Tensor, ...] = ()  # keys and values, (R, H, capacity, d), with `length` steps filled
        self.length = 0
        self.left_padding: Tensor | None = None  # (R,) steps before the first token of each row; None: 0 in all rows
        self.state: tuple[Tensor, ...] = ()  # of a recurrent layer, (R, …) each
        self.memory: tuple[Tensor, Tensor] | None = None  # projected keys and values of the source, (B, H, S, d)

    @property
    def start(self) -> int | Tensor:
        """The position of the next token, or (R,) its position in each row."""
        return self.length if self.left_padding is None else self.length - self.left_padding

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """(R, H, T, d) twice -> all keys and all values so far, (R, H, length, d)."""
        start, self.length = self.length, self.length + key.size(2)
        both = zip(self.buffers or (None, None), (key, value), strict=True)
        self.buffers = tuple(_write(buffer, new, start) for buffer, new in both)
        return self.buffers[0][:, :, : self.length], self.buffers[1][:, :, : self.length]

    def advance(self, steps: int, *state: Tensor) -> None:
        """Replace the state by the one `steps` tokens later."""
        self.state, self.length = state, self.length + steps

    def select(self, rows: Tensor, sources: Tensor | None) -> None:
        """Reorder the rows, and drop finished sources."""
        self.state = tuple(tensor.index_select(0, rows) for tensor in self.state)
        self.buffers = tuple(_select(buffer, rows, self.length) for buffer in self.buffers)
        if sources is not None and self.memory is not None:
            self.memory = self.memory[0].index_select(0, sources), self.memory[1].index_select(0, sources)

    def shift(self, steps: int) -> None:
        """Insert so many steps of padding before the first step, or remove them if negative."""
        self.buffers = tuple(_shift(buffer, steps, self.length) for buffer in self.buffers)
        self.length += steps

    def join(self, other: LayerKVCache) -> None:
        """Append the rows of another cache of the same length."""
        self.state = tuple(torch.cat(tensors) for tensors in zip(self.state, other.state, strict=True))
        both = zip(self.buffers, other.buffers, strict=True)
        self.buffers = tuple(torch.cat((a[:, :, : self.length], b[:, :, : self.length])) for a, b in both)


class KVCache:
    """The caches of all decoder layers, and the mask over the source that they share."""

    def __init__(self, n_layers: int, memory_keep: Tensor | None = None) -> None:
        self.layers = [LayerKVCache() for _ in range(n_layers)]
        self.memory_keep = memory_keep  # (B, 1, 1, S)
        self.copies: CopySource | None = None  # of a pointer-generator

    @property
    def length(self) -> int:
        """The number of cached tokens in the longest row."""
        return self.layers[0].length

    @property
    def start(self) -> int | Tensor:
        """The position of the next token, or (R,) its position in each row."""
        return self.layers[0].start

    def not_padding(self, steps: int) -> Tensor | None:
        """-> (R, 1, 1, S): the mask over left padding once `steps` tokens are appended; None if there is no padding."""
        first = self.layers[0]
        if first.left_padding is None or not first.buffers:
            return None
        positions = torch.arange(self.length + steps, device=first.left_padding.device)
        return (positions >= first.left_padding.unsqueeze(1))[:, None, None]

    def select(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """New row r continues old row `rows[r]`; only the sentences in `sources` stay, all if None.

        The rows of a sentence are adjacent, and every sentence has the same number of rows.
        """
        for layer in self.layers:
            layer.select(rows, sources)
        if sources is not None and self.memory_keep is not None:
            self.memory_keep = self.memory_keep.index_select(0, sources)
        if sources is not None and self.copies is not None:
            self.copies = self.copies.select(sources)
        if (left_padding := self.layers[0].left_padding) is not None:
            self._pad_left(left_padding.index_select(0, rows))

    def join(self, other: KVCache) -> None:
        """Append the rows of another cache (continuous batching). Language models only; neither cache may be empty."""
        longest = max(self.length, other.length)
        left_padding = torch.cat((self._left_padding(longest), other._left_padding(longest)))
        for layer, joining in zip(self.layers, other.layers, strict=True):
            layer.shift(longest - layer.length)
            joining.shift(longest - joining.length)
            layer.join(joining)
        self._pad_left(left_padding)

    def _left_padding(self, length: int) -> Tensor:
        """-> (R,): the left padding of each row if all rows are `length` steps long."""
        first = self.layers[0]
        rows = (first.buffers or first.state)[0]
        padding = torch.zeros(len(rows), dtype=torch.long, device=rows.device)
        return (padding if first.left_padding is None else first.left_padding) + length - self.length

    def _pad_left(self, left_padding: Tensor) -> None:
        """Set the left padding (R,), and remove the steps that are padding in every row."""
        least = int(left_padding.min()) if len(left_padding) else 0
        rest = left_padding - least if (left_padding > least).any() else None
        for layer in self.layers:
            layer.shift(-least)
            layer.left_padding = rest


def _write(buffer: Tensor | None, new: Tensor, start: int) -> Tensor:
    end = start + new.size(2)
    if buffer is None or buffer.size(2) < end:
        wider = new.new_empty(*new.shape[:2], end + GROWTH, new.size(3))
        if buffer is not None:
            wider[:, :, :start] = buffer[:, :, :start]
        buffer = wider
    buffer[:, :, start:end] = new
    return buffer


def _select(buffer: Tensor, rows: Tensor, length: int) -> Tensor:
    selected = buffer.new_empty(len(rows), *buffer.shape[1:])
    selected[:, :, :length] = buffer[:, :, :length].index_select(0, rows)
    return selected


def _shift(buffer: Tensor, steps: int, length: int) -> Tensor:
    """Padding is masked, but it must be finite: a weight of 0 times NaN is NaN."""
    if steps <= 0:
        return buffer[:, :, -steps:]
    return torch.cat((buffer.new_zeros(*buffer.shape[:2], steps, buffer.size(3)), buffer[:, :, :length]), 2)
