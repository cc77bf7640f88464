"""What decoding remembers between two steps. It belongs to the caller, never to a module.

The keys and values of the source are computed once and shared by all beams of a sentence: the beams are so many query
rows over one memory. Only the keys and values of the output so far are kept for each row, or a state of fixed size
where a layer is recurrent.
"""

from torch import Tensor

ROOM = 32  # steps that the buffers grow by


class LayerCache:
    """Keys and values of one decoder layer, or the state of one that needs no more than that."""

    def __init__(self) -> None:
        self.keys: Tensor | None = None  # (R, H, room, d), of which `length` steps are filled
        self.values: Tensor | None = None
        self.length = 0
        self.state: tuple[Tensor, ...] = ()  # of a recurrent layer, (R, …) each
        self.memory: tuple[Tensor, Tensor] | None = None  # keys and values of the source, (B, H, S, d)

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


class Cache:
    """Keys and values of all decoder layers, and the mask over the source that they share."""

    def __init__(self, n_layers: int, source_keep: Tensor | None = None) -> None:
        self.layers = [LayerCache() for _ in range(n_layers)]
        self.source_keep = source_keep  # (B, 1, 1, S)

    @property
    def length(self) -> int:
        """Tokens already decoded."""
        return self.layers[0].length

    def select(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """New row r continues old row `rows[r]`; only the sentences in `sources` stay, all if None.

        The rows of a sentence stand together, and each sentence has equally many.
        """
        for layer in self.layers:
            layer.select(rows, sources)
        if sources is not None and self.source_keep is not None:
            self.source_keep = self.source_keep.index_select(0, sources)


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
