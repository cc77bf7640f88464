"""A time is kept, by a clock that only what is done moves: no test here depends on the speed of the machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from heedful.config import load_config
from heedful.storage.folder import load_folder
from heedful.training import averaging, checkpoint, loop
from heedful.training.checkpoint import TrainState
from heedful.training.loop import TIME_IS_UP, TrainingRun
from heedful.training.run_report import RunReport, read_metrics
from heedful.training.setup import open_run
from heedful.training.step import StepResult
from heedful.training.time_budget import TimeBudget, search_in_time
from tests.conftest import TINY

SEARCH, SAVE, PUBLISH, CURVE = 4.0, 0.5, 0.5, 2.0  # seconds


class Killed(BaseException):
    """Stands for SIGKILL."""


class Machine:
    """Its time passes while it works, and from some moment on more or less of it for the same work."""

    def __init__(self, changes_at: float = 0.0, factor: float = 1.0) -> None:
        self.time, self.changes_at, self.factor = 0.0, changes_at, factor

    def now(self) -> float:
        return self.time

    def work(self, seconds: float) -> None:
        self.time += seconds * (self.factor if self.time >= self.changes_at else 1.0)

    def takes(self, seconds: float, function: Callable[..., Any]) -> Callable[..., Any]:
        def slow(*inputs: Any, **named: Any) -> Any:
            self.work(seconds)
            return function(*inputs, **named)

        return slow


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture
def opened(corpus: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., TrainingRun]:
    """Opens a run on a machine; its updates learn nothing, and everything else takes the time above."""
    scores = {"valid_bleu": 10.0, "valid_chrf": 10.0}

    def open_(
        machine: Machine, time: str, resume: bool = False, learn: float = 1.0, search: float = SEARCH, kill: int = 0
    ) -> TrainingRun:
        def update(run: TrainingRun, batch: object, interrupted: bool) -> StepResult:
            machine.work(learn)
            run.state.update += 1
            if run.state.update == kill:
                raise Killed
            return StepResult(loss=1.0, tokens=10, norm=1.0, interrupted=interrupted)

        files = {"source": corpus / "train.en", "target": corpus / "train.de", "cache_dir": store}
        files |= {"valid_source": corpus / "valid.en", "valid_target": corpus / "valid.de"}
        words = [*TINY, f"train.time={time}", "train.max_updates=1000000000", "train.schedule=linear"]
        requested = load_config(None, [*words, "train.patience=0"], data=files)
        run = open_run(requested, tmp_path / "out", resume, RunReport(tmp_path / "out", Console(quiet=True)))
        run.now, run.task.measure = machine.now, machine.takes(search, lambda *inputs: scores)
        calibrate = machine.takes(search, lambda *inputs: None)  # translates the validation set once more
        run.task._calibrate = lambda folder, budget, log: budget.affords(1) and calibrate()
        run.publish = machine.takes(PUBLISH, run.publish)
        monkeypatch.setattr(loop, "update", update)
        monkeypatch.setattr(checkpoint, "save", machine.takes(SAVE, SAVING))
        return run

    return open_


SAVING = checkpoint.save


def finish(run: TrainingRun, machine: Machine) -> TrainState:
    """Everything until the last file, as `heedful train` does it."""
    state = loop.train(run)
    run.task.tune_search(load_folder(run.out), state.best[0], run.budget, run.report.log)
    machine.work(CURVE)
    return state


def kept(seconds: float, inputs: float) -> bool:
    return abs(seconds - inputs) <= max(10.0, 0.05 * inputs)


def last_rate(out: Path) -> float:
    """The last learning rate, as a share of the highest."""
    rates = [record["learning_rate"] for record in read_metrics(out) if "learning_rate" in record]
    return rates[-1] / max(rates)


@pytest.mark.parametrize(
    ("time", "inputs", "learn", "changes_at", "factor"),
    [
        ("2m", 120.0, 0.5, 0.0, 1.0),
        ("2m", 120.0, 0.5, 0.5, 3.0),
        ("2m", 120.0, 0.5, 0.8, 2.0),
        ("10m", 600.0, 4.0, 0.5, 3.0),
        ("10m", 600.0, 4.0, 0.5, 0.3),
    ],
)
def test_a_time_is_kept_by_a_machine_of_any_speed(
    opened: Callable[..., TrainingRun],
    tmp_path: Path,
    time: str,
    inputs: float,
    learn: float,
    changes_at: float,
    factor: float,
) -> None:
    machine = Machine(changes_at * inputs, factor)
    state = finish(opened(machine, time, learn=learn), machine)
    assert kept(machine.time, inputs), machine.time
    assert last_rate(tmp_path / "out") < 0.05
    assert state.ended == TIME_IS_UP
    assert len([record for record in read_metrics(tmp_path / "out") if "valid_loss" in record]) >= 2


@pytest.mark.parametrize("search", [0.0, 12.0])
def test_a_time_is_kept_whatever_a_validation_takes(
    opened: Callable[..., TrainingRun], tmp_path: Path, search: float
) -> None:
    machine = Machine()
    finish(opened(machine, "3m", search=search), machine)
    assert kept(machine.time, 180), machine.time
    assert last_rate(tmp_path / "out") < 0.05


def test_validations_that_take_too_long_for_the_time_are_not_repeated(opened: Callable[..., TrainingRun]) -> None:
    machine = Machine()
    state = finish(opened(machine, "1m", search=40.0), machine)
    assert state.ended == TIME_IS_UP
    assert machine.time < 60 + 10, machine.time


@pytest.mark.parametrize(
    ("time", "count"), [("train.time=1m", 75), ("train.time=1h", 500), ("train.max_updates=9", 500)]
)
def test_the_first_validation_of_a_short_time_translates_what_there_is_time_for(time: str, count: int) -> None:
    """A model that has learned little writes long rubbish, and takes its time: here 0.04 s a sentence."""
    machine, log = Machine(), list[str]()
    state = TrainState()
    budget = TimeBudget(state, 60.0 if count < 500 else 3600.0 * ("time" in time), machine.now)
    requested: list[int] = []

    def translate(numbers: range) -> list[str]:
        machine.work(0.04 * len(numbers))
        requested.append(len(numbers))
        return ["a"] * len(numbers)

    assert len(search_in_time(translate, 500, 25, budget, log.append)) == count
    assert (state.valid_sentences, len(log)) == ((count, 1) if count < 500 else (0, 0))
    state.validated, requested[:] = 10, []
    search_in_time(translate, count, 25, budget, log.append)
    assert requested == [count]


def test_the_first_validation_of_a_short_time_reads_what_there_is_time_for(opened: Callable[..., TrainingRun]) -> None:
    machine = Machine()
    run = opened(machine, "1m")
    run.start_time()
    loss, tokens = run.task.loss, list[int]()

    def slow(model: object, piece: object) -> Any:
        machine.work(0.5)
        result = loss(model, piece)
        tokens.append(result.tokens)
        return result

    run.task.loss, run.task.batch_tokens = slow, 24  # type: ignore[method-assign, attr-defined]
    averaging.validation_scores(run)
    assert machine.time == 1.5 and len(tokens) == 3 and run.state.valid_tokens == sum(tokens)
    averaging.validation_scores(run, averaging.COMPARED_TOKENS)
    run.state.validated = 10
    averaging.validation_scores(run)
    assert len(tokens) == 9


def test_a_slow_moment_after_a_validation_does_not_end_a_run() -> None:
    machine = Machine()
    state = TrainState(
        update=50, every=50, validated=50, update_seconds=1.0, validation_seconds=10.0, search_seconds=5.0
    )
    budget = TimeBudget(state, 120.0, machine.now)
    for took in (1.0, 4.0, 4.0, 4.0):
        machine.work(took)
        state.update += 1
        budget.tick(100)
    assert budget.updates_in_time(10**9, 2) > state.update + 15


def test_a_resumed_run_counts_the_time_of_its_sessions(opened: Callable[..., TrainingRun], tmp_path: Path) -> None:
    machine = Machine()
    with pytest.raises(Killed):
        loop.train(opened(machine, "2m", kill=80))
    path = checkpoint.latest(tmp_path / "out/checkpoints")
    assert path is not None
    machine.time += 1000  # nothing runs
    run = opened(machine, "2m", resume=True)
    before, began = run.state.elapsed, machine.time
    assert 0 < before < 90
    assert run.state.update_seconds == pytest.approx(1.0)
    finish(run, machine)
    assert kept(before + machine.time - began, 120)
    assert run.budget.elapsed() == pytest.approx(before + machine.time - began)


def test_more_time_goes_on_where_the_time_was_up(opened: Callable[..., TrainingRun]) -> None:
    machine = Machine()
    state = finish(opened(machine, "1m"), machine)
    assert opened(machine, "1m", resume=True).state.ended == TIME_IS_UP
    for _ in range(2):  # the second time, it was killed before its next checkpoint
        longer = opened(machine, "2m", resume=True)
        assert not longer.state.ended
        assert longer.state.total == pytest.approx(120 / state.elapsed * state.update, rel=0.01)
    began = machine.time
    finish(longer, machine)
    assert kept(state.elapsed + machine.time - began, 120)


@pytest.mark.parametrize("first", [0.1, 90.0])
def test_the_first_update_may_take_long(first: float) -> None:
    """Such as when kernels are compiled for it."""
    machine = Machine()
    state = TrainState(every=5000)
    budget = TimeBudget(state, 1800.0, machine.now)
    while not budget.ready():
        machine.work(0.1 if state.update else first)
        state.update += 1
        budget.tick(100)
    assert budget.updates_in_time(10**9, 3) == pytest.approx((0.9 * 1800 - first) / 0.1, rel=0.01)
    assert state.update_seconds == pytest.approx(0.1)


def test_updates_that_take_as_long_as_the_time() -> None:
    machine, state = Machine(), TrainState(every=5000)
    budget = TimeBudget(state, 20.0, machine.now)
    machine.work(12.0)
    state.update += 1
    budget.tick(100)
    assert budget.ready() and budget.updates_in_time(10**9, 3) in (1, 2)
    assert state.update_seconds == 12.0
