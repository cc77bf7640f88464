"""Mixtures of experts: which experts a token goes to, and with which gates."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from heedful.inside.page_packing import shares
from heedful.inside.recorded_run import RecordedRun


def expert_use(run: RecordedRun) -> list[dict[str, Any]] | None:
    """What the page shows: the experts of every layer and token of each stack; None without experts."""
    use = []
    for stack, side in (("encoder", "source"), ("decoder", "target")):
        if gates := recorded_gates(run, stack):
            layers = [chosen_experts(layer, run.folder.model.config.experts_per_token) for layer in gates.values()]
            use.append({"stack": stack, "side": side, "layers": layers})
    return use or None


def recorded_gates(run: RecordedRun, stack: str) -> dict[str, Tensor]:
    """The gates of every layer of a stack, (T, E) each, by their names; ACT may halt before the last."""
    config = run.folder.model.config
    n_layers = config.encoder_layers if stack == "encoder" else config.decoder_layers
    names = (f"{stack}.{layer}.feed.gates" for layer in range(n_layers))
    return {name: run.trace[name] for name in names if name in run.trace}


def chosen_experts(gates: Tensor, chosen: int) -> dict[str, Any]:
    """(T, E) -> the experts of each token, the largest gate first, and their gates, (T, k) each."""
    largest, experts = gates.topk(chosen, dim=-1)
    return {"experts": np.asarray(experts.numpy(), np.uint16), "gates": shares(largest, fine=True)}
