"""Time: how much of it a run has used, how fast its updates are, and how many of them fit into a given time.

Everything from the first update to the last file counts. What has been measured is kept in `State`, so a resumed run
plans with it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from heedful.training.checkpoint import TrainState

MEASURE_SECONDS = 20.0  # how long speed is measured before a run of a given time is planned, if it is long enough
SPEED_MEMORY = 10.0  # seconds, or a 20th of the time given: how far back the mean speed reaches
UNKNOWN_SHARE = 0.1  # of the time given: reserved for the end until a validation has been measured
VALIDATION_SHARE = 0.1  # of the time between two validations that one of them may take
MOST_VALIDATIONS, FEWEST_VALIDATIONS = 20, 4  # in a given time, one a minute between them
LOSS_SHARE, SEARCH_SHARE = 0.02, 0.04  # of the time given: what a validation may take to compute a loss, to translate
CURVE_SECONDS = 3.0  # for the learning curve, its library included


class Clock:
    """Time spent training, in all sessions together, and the speed of the last updates."""

    def __init__(self, state: TrainState, given: float = 0.0, now: Callable[[], float] = time.monotonic) -> None:
        self.state, self.given, self.now = state, given, now
        self.before = state.elapsed
        self.began = self.ticked = now()
        self.memory = max(SPEED_MEMORY, given / 20)
        self.after_first: float | None = None  # when the first update of this session was done
        self.updates = self.spent = 0.0  # of this session, the older the less they weigh
        self.restart()

    def tick(self, tokens: int) -> None:
        """Count an update. The first of a session, in which kernels are made, does not count once there is another."""
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
        """Begin a new record."""
        self.tokens, self.loss = 0, 0.0
        self.recorded = self.now()

    def skip(self) -> None:
        """Leave what happened since the last update out of the speed."""
        self.ticked = self.now()
        self.restart()

    def since_record(self) -> float:
        return max(1e-9, self.now() - self.recorded)

    def elapsed(self) -> float:
        return self.before + self.now() - self.began

    def left(self) -> float:
        """Seconds of the time given, without those that the learning curve takes; endless if none was given."""
        return self.given - CURVE_SECONDS - self.elapsed() if self.given else math.inf

    def warm(self) -> float:
        """Seconds of this session since its first update."""
        return 0.0 if self.after_first is None else self.now() - self.after_first

    def affords(self, searches: int) -> bool:
        """Whether the validation set can be translated so many times more in the time that is left."""
        return self.left() >= searches * self.state.search_seconds

    def exceeded(self, share: float, began: float) -> bool:
        """Whether more than this share of the time given has passed since a moment; never if none was given."""
        return bool(self.given) and self.now() - began > share * self.given

    def ready(self) -> bool:
        """Whether the speed is known well enough to plan a run by it."""
        measured = self.warm() >= min(MEASURE_SECONDS, self.given / 20)
        return self.state.planned or measured or self.elapsed() >= self.given / 2

    def updates_in_time(self, most: int, searches: int) -> int:
        """How many updates there will be when as much time is left as the end takes, at the speed of the last ones.

        The end is a last validation, and `searches` that follow it.
        """
        state = self.state
        if state.validation_seconds is None:
            end, each = UNKNOWN_SHARE * self.given, state.update_seconds
        else:
            end = state.validation_seconds + searches * state.search_seconds
            each = state.update_seconds + state.validation_seconds / state.every
        return min(most, state.update + max(0, round((self.left() - end) / max(1e-9, each))))

    def interval(self, total: int) -> int:
        """Updates between two validations of a run of a given time."""
        count = min(MOST_VALIDATIONS, max(FEWEST_VALIDATIONS, self.given / 60))
        apart = (self.state.validation_seconds or 0.0) / VALIDATION_SHARE / max(1e-9, self.state.update_seconds)
        return max(1, int(total / count), int(apart))
