"""Sampling of single tokens in NumPy: the distributions that `sample` draws from, without torch.

Tokens are drawn after temperature, top-k, top-p and min-p, in this order. A row is drawn by itself, so it does not
depend on the others.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from heedful.search.options import SearchOptions

GREEDY_TEMPERATURE = 1e-6  # at and below it sampling is greedy: scores / temperature would overflow
Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]


def sample_numbers(ids: Sequence[int], number: int, length: int, seed: int) -> npt.NDArray[np.float64]:
    """(length,) numbers in [0, 1), a function of seed, source ids and sample number."""
    key = np.array([seed, number, *ids], dtype="<i8").tobytes()
    digest = int.from_bytes(hashlib.blake2b(key, digest_size=16).digest(), "little")
    return np.random.Generator(np.random.Philox(key=digest)).random(length)


def draw_token(log_probs: Floats, number: float, options: SearchOptions) -> int:
    """(V,) log-probabilities and a number in [0, 1) -> a token."""
    if options.temperature <= GREEDY_TEMPERATURE or options.top_k == 1:
        return int(log_probs.argmax())
    scores, ids = log_probs, None
    if options.top_k:
        ids = best_tokens(log_probs, options.top_k)
        scores = log_probs[ids]
    scores = scores / np.float32(options.temperature)
    if options.top_p < 1:
        scores = _keep_top_p(scores, options.top_p)
    if options.min_p > 0:
        scores = np.where(scores < scores.max() + np.float32(math.log(options.min_p)), -np.inf, scores)
    total = _softmax(scores).cumsum(dtype=np.float64)
    place = min(int(np.searchsorted(total, number * total[-1], side="right")), len(total) - 1)
    return place if ids is None else int(ids[place])


def best_tokens(log_probs: Floats, k: int) -> Ids:
    """(V,) -> the k most probable tokens, best first, ties to the lowest."""
    if k >= len(log_probs):
        return np.argsort(-log_probs, kind="stable")
    least = np.partition(log_probs, len(log_probs) - k)[len(log_probs) - k]
    candidates = np.flatnonzero(log_probs >= least)
    order = np.argsort(-log_probs[candidates], kind="stable")
    return candidates[order[:k]]


def penalize_repeated(log_probs: Floats, ids: Sequence[int], penalty: float) -> None:
    """Multiply the log-probability of every token that has occurred by `penalty` (Keskar et al., 2019), in place."""
    if penalty != 1.0 and ids:
        log_probs[np.unique(ids)] *= np.float32(penalty)


def _keep_top_p(scores: Floats, mass: float) -> Floats:
    """Minus infinity outside the nucleus, the fewest tokens that sum to `mass` (Holtzman et al., 2020)."""
    probs = _softmax(scores)
    order = np.argsort(-probs, kind="stable")
    held = probs[order].cumsum(dtype=np.float64)
    before = np.concatenate(([0.0], held[:-1]))  # sum of the better ones
    nucleus_scores = np.full_like(scores, -np.inf)
    nucleus = order[before < mass]
    nucleus_scores[nucleus] = scores[nucleus]
    return nucleus_scores


def _softmax(scores: Floats) -> Floats:
    exps = np.exp(scores - scores.max())
    probabilities: Floats = exps / exps.sum()
    return probabilities
