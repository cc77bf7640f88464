"""The time budget of a run: elapsed time, speed of updates, and how many of them fit.

Everything from the first update to the last file counts. Measurements are kept in `TrainState` for a resumed run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from heedful.training.checkpoint import TrainState

MEASURE_SECONDS = 20.0  # of measuring the speed before a timed run is planned; less for short runs
SPEED_MEMORY = 10.0  # seconds, or a 20th of the budget: time constant of the moving average of the speed
UNKNOWN_SHARE = 0.1  # of the budget: reserved for the end until a validation has been measured
VALIDATION_SHARE = 0.1  # of the time between two validations that one of them may take
MOST_VALIDATIONS, FEWEST_VALIDATIONS = 20, 4  # in a timed run; one per minute within these limits
LOSS_SHARE, SEARCH_SHARE = 0.02, 0.04  # of the budget: limits of a validation for the loss and for the search
CURVE_SECONDS = 3.0  # for drawing the learning curve, importing matplotlib included


class TimeBudget:
    """Training time of all sessions together, and the speed of the last updates."""

    def __init__(self, state: TrainState, seconds: float = 0.0, now: Callable[[], float] = time.monotonic) -> None:
        self.state, self.seconds, self.now = state, seconds, now
        self.before = state.elapsed
        self.began = self.ticked = now()
        self.memory = max(SPEED_MEMORY, seconds / 20)
        self.after_first: float | None = None  # end of the first update of this session
        self.updates = self.spent = 0.0  # exponentially decaying sums over this session
        self.restart()

    def tick(self, tokens: int) -> None:
        """Count an update; the first of a session, which includes warm-up, is replaced by the second."""
        now = self.now()
        took, self.ticked = now - self.ticked, now
        self.tokens += tokens
        if self.after_first is None:
            self.after_first, self.state.update_seconds = now, took
            return
        fade = math.exp(-took / self.memory)
        self.updates, self.spent = self.updates * fade + 1, self.spent * fade + took
        self.state.update_seconds = self.spent / self.updates

    def restart(self) -> None:
        """Start a new record."""
        self.tokens, self.loss = 0, 0.0
        self.recorded = self.now()

    def skip(self) -> None:
        """Exclude the time since the last update from the speed."""
        self.ticked = self.now()
        self.restart()

    def since_record(self) -> float:
        return max(1e-9, self.now() - self.recorded)

    def elapsed(self) -> float:
        return self.before + self.now() - self.began

    def remaining(self) -> float:
        """Remaining seconds, less those for the learning curve; infinite without a budget."""
        return self.seconds - CURVE_SECONDS - self.elapsed() if self.seconds else math.inf

    def warm(self) -> float:
        """Seconds of this session since its first update."""
        return 0.0 if self.after_first is None else self.now() - self.after_first

    def affords(self, searches: int) -> bool:
        """Whether the remaining time is enough for `searches` more searches of the validation set."""
        return self.remaining() >= searches * self.state.search_seconds

    def exceeded(self, share: float, began: float) -> bool:
        """Whether more than `share` of the budget has passed since `began`; never without a budget."""
        return bool(self.seconds) and self.now() - began > share * self.seconds

    def ready(self) -> bool:
        """Whether the speed has been measured for long enough to plan the run."""
        measured = self.warm() >= min(MEASURE_SECONDS, self.seconds / 20)
        return self.state.planned or measured or self.elapsed() >= self.seconds / 2

    def updates_in_time(self, most: int, searches: int) -> int:
        """Number of updates, at the current speed, that leaves time for a last validation and `searches` after it."""
        state = self.state
        if state.validation_seconds is None:
            end, per_update = UNKNOWN_SHARE * self.seconds, state.update_seconds
        else:
            end = state.validation_seconds + searches * state.search_seconds
            per_update = state.update_seconds + state.validation_seconds / state.every
        return min(most, state.update + max(0, round((self.remaining() - end) / max(1e-9, per_update))))

    def interval(self, total: int) -> int:
        """Updates between two validations of a timed run."""
        count = min(MOST_VALIDATIONS, max(FEWEST_VALIDATIONS, self.seconds / 60))
        apart = (self.state.validation_seconds or 0.0) / VALIDATION_SHARE / max(1e-9, self.state.update_seconds)
        return max(1, int(total / count), int(apart))


def search_in_time(
    search: Callable[[range], list[str]], count: int, chunk: int, budget: TimeBudget, log: Callable[[str], None]
) -> list[str]:
    """The outputs for all validation examples; `search` computes those of a range of them.

    The first validation of a timed run computes, `chunk` by `chunk`, only what its share of the time allows. Later
    validations compute as many, so that scores can be compared.
    """
    limited = budget.seconds and not budget.state.validated
    began, outputs = budget.now(), list[str]()
    while len(outputs) < count and not (limited and budget.exceeded(SEARCH_SHARE, began)):
        outputs += search(range(len(outputs), min(len(outputs) + chunk, count) if limited else count))
    if len(outputs) < count:
        budget.state.valid_sentences = len(outputs)
        log(f"validation scores are those of the first {len(outputs)} examples: train.time is too short for more")
    return outputs
