"""How many updates a time is enough for, while it passes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from heedful.config import read
from heedful.train import loop
from heedful.train.checkpoint import State
from heedful.train.ranks import Ranks


def planned(monkeypatch: pytest.MonkeyPatch, time: str, first: float, others: float) -> tuple[State, loop.Clock]:
    """A run whose first update takes so many seconds and the others so many, at the moment when it is planned."""
    now = [0.0]
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: now[0]))
    config = read(None, [f"train.time={time}", "train.max_updates=1000000000"])
    run: Any = SimpleNamespace(config=config, state=State(total=10**9, every=5000), ranks=Ranks("cpu"))
    clock = loop.Clock(run.state)
    while not run.state.planned:
        now[0] += others if run.state.update else first
        run.state.update += 1
        clock.tick(100)
        loop.plan_for_time(run, clock)
    return run.state, clock


@pytest.mark.parametrize("first", [0.1, 90.0])
def test_the_first_update_may_take_long(monkeypatch: pytest.MonkeyPatch, first: float) -> None:
    """Such as when kernels are compiled for it."""
    state, clock = planned(monkeypatch, "30m", first, 0.1)
    assert state.total == pytest.approx((1800 * loop.TRAINING_SHARE - first) / 0.1, rel=0.01)
    assert state.every == loop.default_interval(state.total)
    assert clock.seconds_per_update() == pytest.approx(0.1)


def test_updates_that_take_as_long_as_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    state, clock = planned(monkeypatch, "20s", 12.0, 12.0)
    assert (state.update, state.total) == (1, 2)
    assert clock.seconds_per_update() == 12.0
