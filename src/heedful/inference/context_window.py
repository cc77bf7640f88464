"""The context window of a GPT.

Rows of different lengths share a batch. Sampling and text are unknown here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.inference.engine_window import newest
from heedful.model.kv_cache import KVCache
from heedful.model.transformer import DecoderModel
from heedful.ops.precision import autocast

READ_TOKENS = 4096  # of prompts that are computed at once


class ContextWindow:
    """The tokens that the model attends to in each row: all so far, or the newest ones once they exceed its limit.

    Rows of any length share a batch; they are added and removed at any time.
    """

    def __init__(self, model: DecoderModel, precision: str = "float32") -> None:
        self.model, self.precision = model, precision
        self.longest = model.config.max_length
        self.rows: list[list[int]] = []  # ids in the window
        self.cache: KVCache | None = None
        self.read: list[int] = []  # the row of each place in the KV cache

    def add(self, ids: Sequence[int]) -> None:
        """One more row, below the others."""
        self.rows.append(newest(ids, self.longest))

    @torch.inference_mode()
    def next(self) -> NDArray[np.float32]:
        """-> (R, V) log-probabilities of the token that comes next."""
        with autocast(self.precision, self.model.embedding.weight.device):
            return self._next().cpu().numpy()

    def _next(self) -> Tensor:
        hidden = []  # (R, D), in the order of the cache
        if self.cache is not None:
            hidden.append(self.model.step(self._ids(self.rows[row][-1:] for row in self.read), self.cache))
        for rows in self._unread():
            distinct = list(dict.fromkeys(tuple(self.rows[row]) for row in rows))
            which = self._ids(distinct.index(tuple(self.rows[row])) for row in rows)
            cache = self.model.start()
            hidden.append(self.model.step(self._ids(distinct), cache)[which])
            cache.select(which)
            self._join(cache, rows)
        states = torch.cat([states_of_group[:, -1] for states_of_group in hidden])
        if self.read != sorted(self.read) and self.cache is not None:
            order = self._ids(self.read).argsort()
            self.cache.select(order)
            self.read, states = sorted(self.read), states[order]
        return self.model.project(states).float().log_softmax(-1)

    def _ids(self, numbers: Iterable[int] | Iterable[Sequence[int]]) -> Tensor:
        return torch.tensor(list(numbers), device=self.model.embedding.weight.device)

    def _unread(self) -> Iterator[list[int]]:
        """Rows of one length that are not in the cache, in groups of READ_TOKENS tokens at most."""
        by_length: dict[int, list[int]] = {}
        for row in sorted(set(range(len(self.rows))) - set(self.read)):
            by_length.setdefault(len(self.rows[row]), []).append(row)
        for length, rows in by_length.items():
            most = max(1, READ_TOKENS // length)
            yield from (rows[start : start + most] for start in range(0, len(rows), most))

    def _join(self, cache: KVCache, rows: list[int]) -> None:
        if self.cache is None:
            self.cache, self.read = cache, list(rows)
        else:
            self.cache.join(cache)
            self.read += rows

    def append(self, ids: Sequence[int]) -> None:
        """Append (R,) ids, one to each row."""
        slid = set()
        for row, token in enumerate(ids):
            self.rows[row].append(token)
            if len(self.rows[row]) > self.longest:
                self.rows[row] = newest(self.rows[row], self.longest)
                slid.add(row)
        if slid:
            self._keep([(place, row) for place, row in enumerate(self.read) if row not in slid])

    def select(self, rows: Sequence[int]) -> None:
        """(R',): new row r continues old row rows[r]."""
        self.rows = [list(self.rows[row]) for row in rows]
        place_of = {row: place for place, row in enumerate(self.read)}
        self._keep([(place_of[old], new) for new, old in enumerate(rows) if old in place_of])

    def _keep(self, places: list[tuple[int, int]]) -> None:
        """Keep these places of the cache, each with the row that it now belongs to."""
        self.read = [row for _, row in places]
        if self.cache is not None and places:
            self.cache.select(self._ids(place for place, _ in places))
        else:
            self.cache = None
