"""Sampling: next-token distributions -> n random outputs of each sentence.

Tokens are drawn after temperature, top-k, top-p and min-p, in this order. The random numbers of a sentence depend only
on the seed, its source ids and the number of the sample, so it has the same samples alone or in any batch. Models, text
and files are unknown here.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.search.hypothesis import Hypothesis, hypotheses
from heedful.search.loops import guard_samples
from heedful.search.next_token import NextToken
from heedful.search.options import SearchOptions
from heedful.search.rows import SearchRows
from heedful.search.token_sampler import GREEDY_TEMPERATURE, sample_numbers
from heedful.search.top import top_k

NUCLEUS_CANDIDATES = 256  # most probable tokens that are searched for the nucleus first


@torch.no_grad()
def sample(
    next_token: NextToken, source: Tensor, source_lengths: Tensor, options: SearchOptions
) -> list[list[Hypothesis]]:
    """(B, S), (B,) -> for each sentence n_best samples, in the order of their numbers."""
    if not len(source):
        return []
    n = options.n_best
    if options.loop_guard:
        sources = [ids[:length] for ids, length in zip(source.tolist(), source_lengths.tolist(), strict=True)]
        options = options.model_copy(update={"constraints": (*options.constraints, guard_samples(sources))})
    rows = SearchRows(next_token, source, source_lengths, options)
    uniforms = uniform_numbers(source, source_lengths, n, int(rows.limit.max()), options.seed)  # (B, n, T)
    samples = Samples(len(source), options, source.device)
    while len(rows.sentence):
        log_probs = rows.step()  # 1. (R, V)
        number = uniforms[rows.sentence, :, rows.length].view(len(log_probs), -1)  # 2. (R, n) at first, then (R, 1)
        ids = draw(log_probs, number, options)  # 3. a token for each number
        chosen = log_probs.gather(1, ids).view(-1, n)  # (A, n) their log-probabilities
        parents = torch.arange(len(ids), device=ids.device).unsqueeze(1).expand_as(ids).reshape(-1, n)  # (A, n)
        ids = ids.view(-1, n)
        stay = samples.collect(rows, parents, ids, chosen, next_token.eos_id)  # 4. store the samples that end
        if stay.all():
            rows.grow(parents, ids, chosen)  # 5. all sentences continue,
        else:
            rows.shrink(stay, parents, ids, chosen)  # 5. or those with a running sample
    return samples.in_order()


def uniform_numbers(source: Tensor, source_lengths: Tensor, n: int, length: int, seed: int) -> Tensor:
    """(B, S), (B,) -> (B, n, length) numbers in [0, 1), a function of seed, source ids and sample number."""
    rows = zip(source.tolist(), source_lengths.tolist(), strict=True)
    uniforms = [[sample_numbers(ids[:end], number, length, seed) for number in range(n)] for ids, end in rows]
    return torch.from_numpy(np.array(uniforms).reshape(len(source), n, length)).to(source.device)


def draw(log_probs: Tensor, number: Tensor, options: SearchOptions) -> Tensor:
    """(R, V), (R, m) in [0, 1) -> (R, m) ids, drawn after temperature, top-k, top-p and min-p."""
    k = options.top_k if options.temperature > GREEDY_TEMPERATURE else 1
    scores, ids = top_k(log_probs, k) if k else (log_probs, None)  # the rest needs only the top k
    if GREEDY_TEMPERATURE < options.temperature != 1:
        scores = scores / options.temperature
    if options.top_p < 1:
        scores = keep_top_p(scores, options.top_p)
    if options.min_p > 0:
        scores = keep_min_p(scores, options.min_p)
    column = _invert(scores, number)
    return column if ids is None else ids.gather(1, column)


def keep_top_p(scores: Tensor, mass: float) -> Tensor:
    """(R, N) -> (R, N) minus infinity outside the nucleus, the fewest tokens that sum to `mass` (Holtzman, 2020)."""
    probs = scores.softmax(1)
    keep = torch.zeros_like(probs, dtype=torch.bool)
    rows, k = torch.arange(len(probs), device=probs.device), NUCLEUS_CANDIDATES
    while len(rows):  # flat distributions need more candidates
        keep[rows], held = _nucleus(probs[rows], mass, k)
        rows, k = rows[(held < mass) & (k < probs.size(1))], 8 * k
    return scores.masked_fill(~keep, -torch.inf)


def _nucleus(probs: Tensor, mass: float, k: int) -> tuple[Tensor, Tensor]:
    """(R, N) -> (R, N) which of the k best belong to the nucleus, and (R,) the sum of these k."""
    best, column = top_k(probs, k)
    held = best.cumsum(1, dtype=torch.float64)
    before = F.pad(held[:, :-1], (1, 0))  # sum of the better ones
    return torch.zeros_like(probs, dtype=torch.bool).scatter(1, column, before < mass), held[:, -1]


def keep_min_p(scores: Tensor, share: float) -> Tensor:
    """(R, N) -> (R, N) minus infinity where a token is less than `share` times as probable as the best one."""
    least = scores.amax(1, keepdim=True) + math.log(share)
    return scores.masked_fill(scores < least, -torch.inf)


def _invert(scores: Tensor, number: Tensor) -> Tensor:
    """(R, N), (R, m) in [0, 1) -> (R, m) columns where the cumulative probability passes the number."""
    total = scores.softmax(1).cumsum(1, dtype=torch.float64)  # (R, N)
    column = torch.searchsorted(total, number * total[:, -1:], right=True)
    return column.clamp(max=total.size(1) - 1)  # rows without an allowed token point past the end


class Samples:
    """Finished samples, and which ones still run, (A, n)."""

    def __init__(self, sentences: int, options: SearchOptions, device: torch.device) -> None:
        self.options = options
        self.finished: list[dict[int, Hypothesis]] = [{} for _ in range(sentences)]
        self.running = torch.ones(sentences, options.n_best, dtype=torch.bool, device=device)

    def collect(self, rows: SearchRows, parents: Tensor, ids: Tensor, log_probs: Tensor, eos_id: int) -> Tensor:
        """(A, n) rows with their next ids and log-probabilities -> (A,) sentences with a sample that still runs."""
        stuck = self.running & (log_probs == -torch.inf)  # the constraints allow no token
        self._add(rows, stuck, rows.prefix[parents[stuck]], rows.log_probs[parents[stuck]], finished=False)
        ending = self.running & ~stuck & (ids == eos_id)
        self._add(rows, ending, *rows.extended(parents[ending], ids[ending], log_probs[ending]), finished=True)
        cut = self.running & ~stuck & ~ending & rows.at_limit().unsqueeze(1)
        self._add(rows, cut, *rows.extended(parents[cut], ids[cut], log_probs[cut]), finished=False)
        self.running &= ~(stuck | ending | cut)
        stay = self.running.any(1)
        self.running = self.running[stay]
        return stay

    def in_order(self) -> list[list[Hypothesis]]:
        """-> the samples of each of the B sentences in the order of their numbers."""
        return [[samples[number] for number in sorted(samples)] for samples in self.finished]

    def _add(self, rows: SearchRows, chosen: Tensor, ids: Tensor, log_probs: Tensor, finished: bool) -> None:
        """(A, n) of which N are true, (N, t), (N, t)."""
        place, number = chosen.nonzero(as_tuple=True)
        samples = hypotheses(ids, log_probs, self.options, finished)
        for sentence, index, sample in zip(rows.sentence[place].tolist(), number.tolist(), samples, strict=True):
            self.finished[sentence][index] = sample
