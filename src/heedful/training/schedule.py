"""The learning rate at each update (section 5.3 of the paper, and today's decays to zero)."""

import math

from heedful.config import TrainSettings


def peak_rate(settings: TrainSettings, d_model: int) -> float:
    """The learning rate at the end of warm-up; the paper's is d_model^-0.5 · warmup^-0.5."""
    return settings.learning_rate or (d_model * settings.warmup) ** -0.5


def learning_rate(update: int, total: int, settings: TrainSettings, d_model: int) -> float:
    """The rate of update 1, 2, …, `total`.

    The paper's d_model^-0.5 · min(update^-0.5, update · warmup^-1.5) is the inverse-sqrt case at its own peak.
    """
    warmup = min(settings.warmup, max(1, total // 2))
    peak = peak_rate(settings, d_model)
    if update <= warmup:
        return peak * update / warmup
    left = max(0.0, (total + 1 - update) / (total + 1 - warmup))  # 1 at the end of warm-up, nearly 0 at the last update
    match settings.schedule:
        case "inverse-sqrt":
            return peak * math.sqrt(warmup / update)
        case "linear":
            return peak * left
        case "cosine":
            return peak * 0.5 * (1 - math.cos(math.pi * left))
        case "constant":
            return peak
