"""Which weights a validation takes: the last ones, or the mean of the last few checkpoints (section 6.1 of the paper).

A mean pays where the checkpoints are near each other. In a short run the earliest of them know little, and a mean with
them is worse than the last weights alone. So each validation compares them by their loss on a part of the held-out
part, which costs little, and only the best is measured by its use, such as by translating; the last validation of a run
measures the two best if their losses are close.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from heedful.ops.precision import autocast
from heedful.training import checkpoint
from heedful.training.clock import LOSS_SHARE
from heedful.training.run_report import Record
from heedful.training.tasks.task import Scores

if TYPE_CHECKING:
    from heedful.training.loop import TrainingRun

COMPARED_TOKENS = 4000  # of the held-out part: candidates differ on the same tokens, so few will do
CLOSE = 0.02  # losses that say little about which of two candidates translates better


@dataclass(frozen=True)
class Choice:
    """The best candidate, whose weights `Run.averaged` holds, with its scores, and what to tell of the others."""

    scores: Scores
    record: Record
    lines: list[str]


def choose(run: TrainingRun) -> Choice:
    """Find the best candidate, and put its weights into `run.averaged`."""
    state = run.state
    candidates = counts(len(state.averaged))
    if len(candidates) == 1:
        state.average = load(run, 1)
        return Choice(scores(run), {}, [])
    losses: dict[int, float] = {}
    for count in candidates:
        load(run, count)
        losses[count] = validation_scores(run, COMPARED_TOKENS)["valid_loss"]
    first, second, *_ = sorted(candidates, key=lambda count: losses[count])
    load(run, first)
    measured = {first: scores(run)}
    close = losses[second] - losses[first] <= CLOSE
    if close and state.update >= state.total and run.clock.affords(1 + run.closing_searches):
        load(run, second)
        measured[second] = scores(run)
    state.average = max(measured, key=lambda count: run.task.rank(measured[count]))
    if state.average != list(measured)[-1]:
        load(run, state.average)
    record: Record = {"average": state.average} | {f"average_{count}_loss": loss for count, loss in losses.items()}
    for count, found in measured.items():
        record |= {f"average_{count}_{name}": value for name, value in found.items() if len(measured) > 1}
    return Choice(measured[state.average], record, [described(run, losses, measured)])


def counts(kept: int) -> list[int]:
    """How many of the last weights a candidate is the mean of: one, and `kept` halved again and again."""
    found = []
    while kept > 1:
        found.append(kept)
        kept //= 2
    return [1, *reversed(found)]


def load(run: TrainingRun, count: int) -> int:
    """Put the mean of the last `count` weights into `run.averaged`."""
    run.averaged.load_state_dict(checkpoint.average(run.checkpoints, run.state.averaged[-count:]))
    return count


def scores(run: TrainingRun) -> Scores:
    """Everything that a validation measures of `run.averaged`."""
    found = validation_scores(run)
    began = run.clock.now()
    found |= run.measure(run.averaged)
    run.state.search_seconds = run.clock.now() - began
    return found


def validation_scores(run: TrainingRun, most_tokens: int | None = None) -> Scores:
    """What follows from the loss of `run.averaged` on the held-out part, or the beginning of it, without smoothing.

    The first validation of a run of a given time reads no more than there is time for, and so do all that follow.
    """
    state, began = run.state, run.clock.now()
    most_tokens = min(most_tokens or state.valid_tokens, state.valid_tokens or most_tokens or 0)
    total, tokens, steps, halted = 0.0, 0, 0.0, 0.0
    with torch.inference_mode(), autocast(run.learning.precision, run.ranks.device):
        for piece in run.task.validation():
            loss = run.task.loss(run.averaged, piece.to(run.ranks.device))
            total, tokens = total + float(loss.likelihood), tokens + loss.tokens
            if loss.pondered is not None:
                steps, halted = steps + float(loss.pondered[0]), halted + float(loss.pondered[1])
            if most_tokens and tokens >= most_tokens:
                break
            if not state.validated and run.clock.exceeded(LOSS_SHARE, began):
                state.valid_tokens = tokens
                break
    return run.task.scores(total, tokens) | ({"valid_ponder": steps / halted} if halted else {})


def described(run: TrainingRun, losses: dict[int, float], measured: dict[int, Scores]) -> str:
    """'last weights: loss 2.310 · mean of 2 checkpoints: loss 2.295 (taken) · …' for the log."""
    parts = []
    for count, loss in losses.items():
        part = f"{f'mean of {count} checkpoints' if count > 1 else 'last weights'}: loss {loss:.3f}"
        percents = [column for column in run.report.columns if column.percent and len(measured) > 1]
        if count in measured and percents:
            part += f", {percents[0].title} {percents[0].show(measured[count])}"
        parts.append(part + (" (taken)" if count == run.state.average else ""))
    return " · ".join(parts)
