"""Small models whose every probability is known, and slow searches that cannot be wrong."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass

import numpy as np
import torch

PAD, BOS, EOS = 0, 1, 2


def mix(x: torch.Tensor) -> torch.Tensor:
    """Scatter 64-bit integers (the finaliser of splitmix64, with wrap-around products)."""
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
    return x ^ ((x >> 31) & 0x1FFFFFFFF)


class ToyCache:
    """A number for each sentence and one for each row; it refuses a select that breaks the contract."""

    def __init__(self, memory: torch.Tensor) -> None:
        self.memory = memory  # (A,)
        self.state = torch.zeros_like(memory)  # (R,)
        self.selects = 0

    def select(self, rows: torch.Tensor, sources: torch.Tensor | None = None) -> None:
        self.selects += 1
        old_width = len(self.state) // len(self.memory)
        remaining = torch.arange(len(self.memory)) if sources is None else sources
        assert (remaining[1:] > remaining[:-1]).all(), "sources must ascend"
        assert len(remaining) and len(rows) % len(remaining) == 0, "every sentence needs equally many rows"
        assert torch.equal(rows // old_width, remaining.repeat_interleave(len(rows) // len(remaining))), (
            "rows left their sentence"
        )
        self.memory, self.state = self.memory[remaining], self.state[rows]


class Toy:
    """Log-probabilities that depend on the source and on the whole prefix, row by row and to the last bit."""

    pad_id, bos_id, eos_id = PAD, BOS, EOS

    def __init__(self, vocab_size: int = 6, seed: int = 0, sharp: float = 2.0, eos: float = 0.0) -> None:
        self.vocab_size, self.seed, self.sharp, self.eos = vocab_size, seed, sharp, eos
        self.rows: list[int] = []  # how many rows each step had
        self.cache: ToyCache | None = None

    def start(self, source: torch.Tensor, source_lengths: torch.Tensor) -> ToyCache:
        memory = torch.full((len(source),), self.seed)
        for column in range(source.size(1)):
            inside = column < source_lengths
            memory = torch.where(inside, mix(memory * 31 + source[:, column] + 7), memory)
        self.cache = ToyCache(memory)
        return self.cache

    def step(self, ids: torch.Tensor, cache: ToyCache) -> torch.Tensor:
        assert ids.shape == cache.state.shape
        self.rows.append(len(ids))
        cache.state = mix(cache.state * 1000003 + ids + 1)
        key = cache.state ^ cache.memory.repeat_interleave(len(ids) // len(cache.memory))
        noise = mix(key[:, None] + 0x9E3779B9 * torch.arange(1, self.vocab_size + 1)) & 0xFFFFFF  # (R, V)
        logits = self.sharp * torch.special.ndtri((noise.double() + 0.5) / 2**24)
        logits[:, self.eos_id] += self.eos
        return logits.log_softmax(1).float()


@dataclass
class Conditional:
    """One sentence of a toy, asked by prefix."""

    toy: Toy
    source: tuple[int, ...]

    def __post_init__(self) -> None:
        self.after = functools.cache(self._after)

    def log_probs(self, prefix: tuple[int, ...]) -> np.ndarray:
        return self.after(prefix)[1]

    def _after(self, prefix: tuple[int, ...]) -> tuple[torch.Tensor, np.ndarray]:
        cache = self.toy.start(torch.tensor([self.source]), torch.tensor([len(self.source)]))
        token = self.toy.bos_id
        if prefix:
            cache.state, token = self.after(prefix[:-1])[0], prefix[-1]
        log_probs = self.toy.step(torch.tensor([token]), cache)
        return cache.state, log_probs[0].double().numpy()


def batch(sentences: list[tuple[int, ...]]) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(map(len, sentences), default=0)
    ids = [[*sentence, *[PAD] * (longest - len(sentence))] for sentence in sentences]
    return torch.tensor(ids, dtype=torch.long).view(len(ids), longest), torch.tensor([len(s) for s in sentences])


def gnmt(length: int, alpha: float) -> float:
    return ((5 + length) / 6) ** alpha


def exhaustive(toy: Toy, source: tuple[int, ...], limit: int, alpha: float, prefix: tuple[int, ...] = ()):
    """Every output of at most `limit` tokens -> (finished, score, ids), best first, finished before cut off."""
    model = Conditional(toy, source)
    words = [v for v in range(toy.vocab_size) if v not in (PAD, BOS, EOS)]
    result = []
    for length in range(len(prefix), limit + 1):
        for tail in itertools.product(words, repeat=length - len(prefix)):
            ids = (*prefix, *tail)
            total = math.fsum(model.log_probs(ids[:i])[ids[i]] for i in range(length))
            if length < limit:
                ended = total + model.log_probs(ids)[EOS]
                result.append((True, ended / gnmt(length + 1, alpha), ids))
            else:
                result.append((False, total / gnmt(length, alpha), ids))
    return sorted(result, key=lambda hypothesis: (not hypothesis[0], -hypothesis[1]))


def greedy(toy: Toy, source: tuple[int, ...], limit: int) -> tuple[tuple[int, ...], bool]:
    model, ids = Conditional(toy, source), ()
    while len(ids) < limit:
        row = model.log_probs(ids).copy()
        row[[PAD, BOS]] = -np.inf
        token = int(row.argmax())
        if token == EOS:
            return ids, True
        ids = (*ids, token)
    return ids, False


def reference_beam(toy: Toy, source: tuple[int, ...], beam: int, n_best: int, limit: int, alpha: float):
    """Beam search of one sentence in plain loops -> (ids, score, finished), best first, and how many steps it took."""
    model = Conditional(toy, source)
    live: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    ended: list[tuple[bool, float, tuple[int, ...]]] = []
    for length in range(1, limit + 1):
        # 1. every extension, ranked: by score, then by row, then by id
        extensions = []
        for row, (total, ids) in enumerate(live):
            for token, log_prob in enumerate(model.log_probs(ids)):
                if token not in (PAD, BOS):
                    extensions.append((-(total + log_prob), row, token))
        extensions.sort()
        # 2. endings among the best W
        for negative, row, token in extensions[:beam]:
            if token == EOS:
                ended.append((True, -negative / gnmt(length, alpha), live[row][1]))
        # 3. the best W that go on
        going = [extension for extension in extensions if extension[2] != EOS][:beam]
        live = [(-negative, (*live[row][1], token)) for negative, row, token in going]
        # 4. done?
        ended.sort(key=lambda hypothesis: -hypothesis[1])
        if not live:
            break
        longest = length if len(ended) >= beam else limit  # with so many endings only what is better now goes on
        if len(ended) >= n_best and live[0][0] / gnmt(longest, alpha) <= ended[n_best - 1][1]:
            break
        if length == limit:
            ended += [(False, total / gnmt(length, alpha), ids) for total, ids in live]
    return [(ids, score, finished) for finished, score, ids in ended[:n_best]], length
