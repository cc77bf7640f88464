import math
from itertools import pairwise

import pytest

from heedful.config import TrainSettings
from heedful.training.schedule import learning_rate


def paper(step: int, d_model: int = 512, warmup: int = 4000) -> float:
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


@pytest.mark.parametrize("step", [1, 2, 100, 3999, 4000, 4001, 10_000, 100_000])
def test_the_default_is_the_formula_of_the_paper(step: int) -> None:
    assert learning_rate(step, 100_000, TrainSettings(), 512) == pytest.approx(paper(step), rel=1e-12)


def test_the_paper_peaks_at_step_4000() -> None:
    rates = [learning_rate(step, 100_000, TrainSettings(), 512) for step in range(1, 8001)]
    assert rates.index(max(rates)) + 1 == 4000
    assert max(rates) == pytest.approx(6.99e-4, rel=1e-3)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_decays_rise_to_the_peak_and_fall_to_nearly_nothing(schedule: str) -> None:
    settings = TrainSettings(schedule=schedule, learning_rate=0.01, warmup=10)
    rates = [learning_rate(step, 100, settings, 64) for step in range(1, 101)]
    assert rates[9] == max(rates) == pytest.approx(0.01)
    assert all(a < b for a, b in pairwise(rates[:10]))
    assert all(a > b for a, b in pairwise(rates[9:]))
    assert 0 < rates[-1] < 0.0002
    assert learning_rate(500, 100, settings, 64) == 0.0


def test_constant_stays_at_its_peak_and_warmup_fits_short_runs() -> None:
    settings = TrainSettings(schedule="constant", learning_rate=0.01, warmup=1000)
    assert learning_rate(5, 10, settings, 64) == pytest.approx(0.01)
    assert learning_rate(10, 10, settings, 64) == 0.01
    assert math.isclose(learning_rate(1, 10, settings, 64), 0.002)
