"""The position-wise feed-forward layer (section 3.3 of the paper), and a mixture of experts in its place.

The sparsely gated mixture of experts (Shazeer et al., 2017) is conditional computation: there are many feed-forward
layers, and a gating network chooses k of them for each token, so capacity grows without computation.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.ops.dropout import dropout

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "swiglu": F.silu,
}


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W1 + b1) W2 + b2, the same at every position; SwiGLU adds a gate (Shazeer, 2020)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.d_model, config.d_ff, bias=config.bias)
        self.gate = nn.Linear(config.d_model, config.d_ff, bias=config.bias) if config.activation == "swiglu" else None
        self.down = nn.Linear(config.d_ff, config.d_model, bias=config.bias)
        self.activation = ACTIVATIONS[config.activation]
        self.rate = config.activation_dropout
        self.inner = nn.Identity()  # a tap
        self._inner_hooks = self.inner._forward_hooks

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        inner = self.activation(self.up(x)) if self.gate is None else self.activation(self.gate(x)) * self.up(x)
        if self._inner_hooks:
            inner = self.inner(inner)
        down: Tensor = self.down(dropout(inner, self.rate, self.training))
        return down


class MixtureOfExperts(nn.Module):
    """y = Σ G(x)_i E_i(x), where G is the softmax over the k largest of H(x) = x W_g + noise · softplus(x W_noise).

    The noise, drawn in training only, and the load-balancing loss keep the gating network from always choosing the
    same experts. Both gating matrices start at zero, so that the load is equal at first.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.chosen = config.experts_per_token
        self.gating = nn.Parameter(torch.zeros(config.experts, config.d_model))  # W_g
        self.noise = nn.Parameter(torch.zeros(config.experts, config.d_model))  # W_noise
        self.experts = nn.ModuleList(FeedForward(config) for _ in range(config.experts))
        self.gates, self.load = nn.Identity(), nn.Identity()  # taps, (B, T, E): G(x), and how likely each expert is
        self._gates_hooks, self._load_hooks = self.gates._forward_hooks, self.load._forward_hooks

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        gates = self._gates(x)  # (B, T, E)
        if self._gates_hooks:
            gates = self.gates(gates)
        tokens, out = x.flatten(0, 1), torch.zeros_like(x).flatten(0, 1)  # (N, D)
        for expert, gate in zip(self.experts, gates.flatten(0, 1).t(), strict=True):
            rows = gate.nonzero().squeeze(1)  # the tokens of this expert
            if len(rows):
                weighted = gate[rows].unsqueeze(1) * expert(tokens[rows].unsqueeze(0)).squeeze(0)
                out = out.index_add(0, rows, weighted.to(out.dtype))
        return out.view_as(x)

    def _gates(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, E): G(x), zero for all but k experts."""
        clean = F.linear(x, self.gating)
        deviation = F.softplus(F.linear(x, self.noise)) + 1e-2 if self.training else None
        logits = clean if deviation is None else clean + torch.randn_like(clean) * deviation  # H(x)
        best, experts = logits.topk(self.chosen, dim=-1)
        if self._load_hooks:
            self.load(selection_probability(clean, logits, deviation, self.chosen))
        return torch.zeros_like(logits).scatter(-1, experts, best.softmax(-1))


def selection_probability(clean: Tensor, logits: Tensor, deviation: Tensor | None, chosen: int) -> Tensor:
    """(B, T, E) three times -> (B, T, E): the probability that an expert is among the k best if its noise is redrawn.

    P = Φ((x W_g − the k-th largest of the others) / softplus(x W_noise)); without noise it is 0 or 1.
    """
    experts = logits.size(-1)
    if chosen == experts:
        return torch.ones_like(logits)
    top = logits.topk(chosen + 1, dim=-1).values
    kth, next_best = top[..., chosen - 1 : chosen], top[..., chosen:]
    threshold = torch.where(logits >= kth, next_best, kth)  # the k-th largest of the other experts
    if deviation is None:
        return (clean >= kth).to(clean.dtype)
    probability: Tensor = torch.special.ndtr((clean - threshold) / deviation)
    return probability


def squared_variation(totals: Tensor) -> Tensor:
    """(E) -> CV²: the squared coefficient of variation, zero if all experts have the same total."""
    return totals.var(correction=0) / (totals.mean().square() + 1e-10)
