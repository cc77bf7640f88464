"""The apparent role of an attention head, computed from its weights alone.

The weight that a head gives on average to the token before, the token itself, the one behind, the first and the last
are five shares. Where one of them is at least a half, the head is named after it; else by how evenly it looks around.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
from torch import Tensor

SHARE = 0.5  # weight from which on a place gives a head its name
EVEN = 0.75  # entropy, as part of the largest possible, from which on a head looks everywhere
KINDS = {
    "previous": "previous token",
    "same": "same token",
    "next": "next token",
    "first": "first token",
    "end": "end token",
    "diffuse": "diffuse: looks almost everywhere at once",
    "selective": "selective: mostly one token, at no fixed place",
    "mixed": "mixed: a few tokens, at no fixed place",
}


@dataclass(frozen=True)
class HeadRole:
    """Statistics of a head."""

    kind: str  # a key of KINDS
    entropy: float  # bits, mean over the queries
    evenness: float  # the same, as part of the most that it could be
    peak: float  # the largest weight of a query, mean over the queries
    distance: float  # tokens between query and key, weighted; over another sequence, from the diagonal
    shares: dict[str, float]  # weight given to the places that a kind is named after

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def head_roles(weights: Tensor, kind: str, causal: bool = False) -> list[HeadRole]:
    """(H, T, S) weights without padding -> the role of each head; `kind` is self or cross."""
    weights = weights.float()
    queries, keys = weights.shape[1:]
    seen = torch.arange(1, queries + 1) if causal else torch.full((queries,), keys)  # keys that a query may attend to
    choice = (seen > 1).float()  # a query that sees a single key has no choice, and says nothing
    count = choice.sum().clamp(min=1)
    bits = -(weights * weights.clamp(min=1e-30).log2()).sum(-1)  # (H, T)
    entropy = (bits * choice).sum(-1) / count
    evenness = (bits / seen.clamp(min=2).log2() * choice).sum(-1) / count
    peak = (weights.amax(-1) * choice).sum(-1) / count
    distance = ((weights * _distance(queries, keys, kind)).sum(-1) * choice).sum(-1) / count
    shares = {name: _share(weights, place, choice) for name, place in _places(queries, keys, kind, causal).items()}
    return [
        HeadRole(
            _kind(
                {name: float(share[head]) for name, share in shares.items()}, float(evenness[head]), float(peak[head])
            ),
            float(entropy[head]),
            float(evenness[head]),
            float(peak[head]),
            float(distance[head]),
            {name: float(share[head]) for name, share in shares.items()},
        )
        for head in range(len(weights))
    ]


def _kind(shares: dict[str, float], evenness: float, peak: float) -> str:
    best = max(shares, key=lambda name: shares[name])
    if shares[best] >= SHARE:
        return best
    if evenness >= EVEN:
        return "diffuse"
    return "selective" if peak >= SHARE else "mixed"


def _places(queries: int, keys: int, kind: str, causal: bool) -> dict[str, Tensor]:
    """For each role, the key that every query would attend to, -1 if there is none."""
    here = torch.arange(queries)
    places = {}
    if kind == "self":
        places = {"previous": here - 1, "same": here}
        if not causal:
            places["next"] = torch.where(here + 1 < keys, here + 1, -1)
    places["first"] = torch.where(here > 1, 0, -1) if causal else torch.zeros(queries, dtype=torch.long)
    if not causal:
        places["end"] = torch.full((queries,), keys - 1)
    if kind == "self":  # where two places are the same key, neither is to have it
        places["first"] = torch.where(here <= 1, -1, places["first"])
        if not causal:
            places["end"] = torch.where(here >= keys - 2, -1, places["end"])
    return places


def _share(weights: Tensor, place: Tensor, choice: Tensor) -> Tensor:
    """(H, T, S), (T,) -> (H,): the mean weight on that key, over the queries that have one."""
    valid = (place >= 0) * choice
    there = weights.gather(-1, place.clamp(min=0).expand(len(weights), -1).unsqueeze(-1)).squeeze(-1)  # (H, T)
    return (there * valid).sum(-1) / valid.sum().clamp(min=1)


def _distance(queries: int, keys: int, kind: str) -> Tensor:
    """-> (T, S)."""
    scale = (keys - 1) / max(1, queries - 1) if kind == "cross" else 1.0
    return (torch.arange(queries).float()[:, None] * scale - torch.arange(keys).float()[None, :]).abs()
