"""What decoding remembers between two steps. It belongs to the caller, never to a module.

The keys and values of the source are computed once and shared by all beams of a sentence: the beams are so many query
rows over one memory. Only the keys and values of the output so far are kept for each row, or a state of fixed size
where a layer is recurrent. Rows of different lengths end together: the shorter ones begin behind places that they skip.
"""

from __future__ import annotations

import torch
from torch import Tensor

ROOM = 32  # steps that the buffers grow by


class LayerCache:
    """Keys and values of one decoder layer, or the state of one that needs no more than that."""

    def __init__(self) -> None:
        self.keys: Tensor | None = None  # (R, H, room, d), of which `length` steps are filled
        self.values: Tensor | None = None
        self.length = 0
        self.skipped: Tensor | None = None  # (R,) places before the first token of each row, if they differ
        self.state: tuple[Tensor, ...] = ()  # of a recurrent layer, (R, …) each
        self.memory: tuple[Tensor, Tensor] | None = None  # keys and values of the source, (B, H, S, d)

    @property
    def start(self) -> int | Tensor:
        """Where the next token stands, or (R,) where it does in each row."""
        return self.length if self.skipped is None else self.length - self.skipped

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """(R, H, T, d) twice -> all keys and all values so far, (R, H, length, d)."""
        start, self.length = self.length, self.length + key.size(2)
        self.keys = _append(self.keys, key, start)
        self.values = _append(self.values, value, start)
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]

    def advance(self, steps: int, *state: Tensor) -> None:
        """Replace the state, `steps` tokens later."""
        self.state, self.length = state, self.length + steps

    def select(self, rows: Tensor, sources: Tensor | None) -> None:
        """Rearrange the rows, and leave out the sources that are done."""
        self.state = tuple(each.index_select(0, rows) for each in self.state)
        if self.keys is not None and self.values is not None:
            self.keys = _select(self.keys, rows, self.length)
            self.values = _select(self.values, rows, self.length)
        if sources is not None and self.memory is not None:
            self.memory = self.memory[0].index_select(0, sources), self.memory[1].index_select(0, sources)

    def shift(self, places: int) -> None:
        """So many places more before the first, or fewer."""
        if self.keys is not None and self.values is not None:
            self.keys = _shift(self.keys, places, self.length)
            self.values = _shift(self.values, places, self.length)
        self.length += places

    def join(self, other: LayerCache) -> None:
        """The rows of another cache of the same length below ours."""
        self.state = tuple(torch.cat(both) for both in zip(self.state, other.state, strict=True))
        if self.keys is not None and self.values is not None and other.keys is not None and other.values is not None:
            self.keys = torch.cat((self.keys[:, :, : self.length], other.keys[:, :, : self.length]))
            self.values = torch.cat((self.values[:, :, : self.length], other.values[:, :, : self.length]))


class Cache:
    """Keys and values of all decoder layers, and the mask over the source that they share."""

    def __init__(self, n_layers: int, source_keep: Tensor | None = None) -> None:
        self.layers = [LayerCache() for _ in range(n_layers)]
        self.source_keep = source_keep  # (B, 1, 1, S)

    @property
    def length(self) -> int:
        """Tokens already decoded, in the longest row."""
        return self.layers[0].length

    @property
    def start(self) -> int | Tensor:
        """Where the next token stands, or (R,) where it does in each row."""
        return self.layers[0].start

    def keep(self, steps: int) -> Tensor | None:
        """-> (R, 1, 1, S): the keys of each row itself, once it has `steps` tokens more; None if all are."""
        first = self.layers[0]
        if first.skipped is None or first.keys is None:
            return None
        places = torch.arange(self.length + steps, device=first.skipped.device)
        return (places >= first.skipped.unsqueeze(1))[:, None, None]

    def select(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """New row r continues old row `rows[r]`; only the sentences in `sources` stay, all if None.

        The rows of a sentence stand together, and each sentence has equally many.
        """
        for layer in self.layers:
            layer.select(rows, sources)
        if sources is not None and self.source_keep is not None:
            self.source_keep = self.source_keep.index_select(0, sources)
        if (skipped := self.layers[0].skipped) is not None:
            self._skip(skipped.index_select(0, rows))

    def join(self, other: Cache) -> None:
        """The rows of another cache below ours: of a language model, which has no source, and neither may be empty."""
        longest = max(self.length, other.length)
        skipped = torch.cat((self._skipped(longest), other._skipped(longest)))
        for mine, theirs in zip(self.layers, other.layers, strict=True):
            mine.shift(longest - mine.length)
            theirs.shift(longest - theirs.length)
            mine.join(theirs)
        self._skip(skipped)

    def _skipped(self, length: int) -> Tensor:
        """-> (R,): places before the first token of each row, if all are to end at `length`."""
        first = self.layers[0]
        rows = first.state[0] if first.keys is None else first.keys
        skipped = torch.zeros(len(rows), dtype=torch.long, device=rows.device)
        return (skipped if first.skipped is None else first.skipped) + length - self.length

    def _skip(self, skipped: Tensor) -> None:
        """(R,): what all rows skip is left out."""
        least = int(skipped.min()) if len(skipped) else 0
        rest = skipped - least if (skipped > least).any() else None
        for layer in self.layers:
            layer.shift(-least)
            layer.skipped = rest


def _append(room: Tensor | None, new: Tensor, start: int) -> Tensor:
    end = start + new.size(2)
    if room is None or room.size(2) < end:
        wider = new.new_empty(*new.shape[:2], end + ROOM, new.size(3))
        if room is not None:
            wider[:, :, :start] = room[:, :, :start]
        room = wider
    room[:, :, start:end] = new
    return room


def _select(room: Tensor, rows: Tensor, length: int) -> Tensor:
    chosen = room.new_empty(len(rows), *room.shape[1:])
    chosen[:, :, :length] = room[:, :, :length].index_select(0, rows)
    return chosen


def _shift(room: Tensor, places: int, length: int) -> Tensor:
    """What is skipped counts for nothing, but it has to be a number."""
    if places <= 0:
        return room[:, :, -places:]
    return torch.cat((room.new_zeros(*room.shape[:2], places, room.size(3)), room[:, :, :length]), 2)
