"""Checkpoint averaging (section 6.1 of the paper): validate the last weights, or the mean of the last few checkpoints.

Averaging helps where checkpoints are close to each other. In a short run the first ones are poor, and an average that
includes them is worse than the last weights. So each validation compares the candidates by their loss on part of the
validation set, which is cheap, and the task measures only the best one; the last validation of a run measures the two
best if their losses are close.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from heedful.ops.precision import autocast
from heedful.training import checkpoint
from heedful.training.run_report import Record
from heedful.training.tasks.task import Scores
from heedful.training.time_budget import LOSS_SHARE

if TYPE_CHECKING:
    from heedful.training.loop import TrainingRun

COMPARED_TOKENS = 4000  # of the validation set; the candidates see the same tokens, so few are enough
CLOSE = 0.02  # a difference in loss that does not predict which candidate translates better


@dataclass(frozen=True)
class Choice:
    """Scores of the best candidate, whose weights are in `run.averaged`, and a record and log lines of all of them."""

    scores: Scores
    record: Record
    lines: list[str]


def choose(run: TrainingRun) -> Choice:
    """Select the best candidate and load its weights into `run.averaged`."""
    state = run.state
    candidates = candidate_sizes(len(state.averaged))
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
    if close and state.update >= state.total and run.budget.affords(1 + run.final_searches):
        load(run, second)
        measured[second] = scores(run)
    state.average = max(measured, key=lambda count: run.task.rank(measured[count]))
    if state.average != list(measured)[-1]:
        load(run, state.average)
    record: Record = {"average": state.average} | {f"average_{count}_loss": loss for count, loss in losses.items()}
    for count, measures in measured.items():
        record |= {f"average_{count}_{name}": value for name, value in measures.items() if len(measured) > 1}
    return Choice(measured[state.average], record, [describe_candidates(run, losses, measured)])


def candidate_sizes(available: int) -> list[int]:
    """How many of the last checkpoints each candidate averages: 1, and `available` halved repeatedly."""
    sizes = []
    while available > 1:
        sizes.append(available)
        available //= 2
    return [1, *reversed(sizes)]


def load(run: TrainingRun, count: int) -> int:
    """Load the mean of the last `count` checkpoints into `run.averaged`."""
    run.averaged.load_state_dict(checkpoint.average(run.checkpoints, run.state.averaged[-count:]))
    return count


def scores(run: TrainingRun) -> Scores:
    """All validation scores of `run.averaged`."""
    from_loss = validation_scores(run)
    began = run.budget.now()
    measured = run.measure()
    run.state.search_seconds = run.budget.now() - began
    return from_loss | measured


def validation_scores(run: TrainingRun, most_tokens: int | None = None) -> Scores:
    """Scores from the loss of `run.averaged` on the validation set, or its first tokens, without label smoothing.

    The first validation of a timed run stops at its share of the time; later validations use as many tokens.
    """
    state, began = run.state, run.budget.now()
    most_tokens = min(most_tokens or state.valid_tokens, state.valid_tokens or most_tokens or 0)
    total, tokens, pondered, expert_use = 0.0, 0, torch.zeros(2), torch.zeros(2)
    with torch.inference_mode(), autocast(run.backend.precision, run.distributed.device):
        for micro_batch in run.task.validation():
            loss = run.task.loss(run.averaged, micro_batch.to(run.distributed.device))
            total, tokens = total + float(loss.likelihood), tokens + loss.tokens
            pondered += 0 if loss.pondered is None else loss.pondered.cpu()
            expert_use += 0 if loss.expert_use is None else loss.expert_use.cpu()
            if most_tokens and tokens >= most_tokens:
                break
            if not state.validated and run.budget.exceeded(LOSS_SHARE, began):
                state.valid_tokens = tokens
                break
    scores = run.task.scores(total, tokens)
    scores |= {"valid_ponder": float(pondered[0] / pondered[1])} if pondered[1] else {}
    return scores | ({"valid_busiest_expert": 100 * float(expert_use[0] / expert_use[1])} if expert_use[1] else {})


def describe_candidates(run: TrainingRun, losses: dict[int, float], measured: dict[int, Scores]) -> str:
    """'last weights: loss 2.310 · mean of 2 checkpoints: loss 2.295 (selected) · …' for the log."""
    parts = []
    for count, loss in losses.items():
        part = f"{f'mean of {count} checkpoints' if count > 1 else 'last weights'}: loss {loss:.3f}"
        percents = [column for column in run.report.columns if column.percent and len(measured) > 1]
        if count in measured and percents:
            part += f", {percents[0].title} {percents[0].show(measured[count])}"
        parts.append(part + (" (selected)" if count == run.state.average else ""))
    return " · ".join(parts)
