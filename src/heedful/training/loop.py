"""The loop: rate, update, report, and now and then validate, publish, save.

Validation reaches it as a function, so it knows no search. Where it stands is `State`, and everything random follows
from the seed and from there, so a run that was killed goes on as if it had not been.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from heedful.config import RunConfig, parse_duration
from heedful.errors import TrainingError
from heedful.model.transformer import Model, build_model
from heedful.ops.cross_entropy import Loss
from heedful.training import averaging, checkpoint
from heedful.training.backend import LossBackend
from heedful.training.checkpoint import TrainState
from heedful.training.clock import Clock
from heedful.training.distributed import Distributed
from heedful.training.optim.adam import Optimizer
from heedful.training.run_report import Record, RunReport
from heedful.training.schedule import learning_rate
from heedful.training.step import Gradients, StepResult, apply_update
from heedful.training.tasks.task import Indices, MicroBatch, Scores, Task

LOG_SECONDS = 2.0  # how often progress is shown
ALL_DONE, TIME_IS_UP = "all updates done", "time is up"


@dataclass
class TrainingRun:
    """Everything a training run is made of."""

    config: RunConfig
    task: Task
    model: Model
    optimiser: Optimizer
    ranks: Distributed
    report: RunReport
    checkpoints: Path
    measure: Callable[[Model], Scores]  # what using a model on the validation set adds to the loss, such as BLEU
    publish: Callable[[Model, TrainState, Scores], None]  # what happens with a model that is the best so far
    show: Callable[[Model], list[str]] = lambda model: []  # lines by which one sees what a model has learned
    closing_searches: int = 0  # translations of the validation set that follow the last validation
    now: Callable[[], float] = time.monotonic
    state: TrainState = field(default_factory=TrainState)
    clock: Clock = field(init=False)

    def __post_init__(self) -> None:
        self.gradients = Gradients(self.model)
        self.learning = LossBackend(self.model, self.task, self.config, self.ranks.device)
        self.averaged = build_model(self.config.model).to(self.ranks.device).eval()

    def start_clock(self) -> None:
        """Count time from now on, after that of earlier sessions."""
        time = self.config.train.time
        self.state.given = parse_duration(time) if time else 0.0
        self.clock = Clock(self.state, self.state.given, self.now)

    def loss_of(self, piece: MicroBatch) -> Loss:
        """The loss that an update lowers."""
        return self.learning.loss(piece)


def train(run: TrainingRun) -> TrainState:
    """Train from where `run.state` stands to the end, or until a signal asks to stop."""
    state, settings = run.state, run.config.train
    if state.total == 0:
        state.total = settings.max_updates
        state.every = settings.checkpoint_every or default_interval(state.total)
    run.model.train()
    run.report.start(state.update, state.total)
    run.start_clock()
    try:
        with interruptions() as interrupted:
            for batch in batches(run):
                outcome = update(run, batch, interrupted())
                run.clock.tick(outcome.tokens)
                plan_for_time(run)
                regular = validation_due(state)
                report_progress(run, outcome, regular)
                if regular:
                    validate(run)
                if regular or outcome.interrupted:
                    save(run)
                if outcome.interrupted:
                    state.ended = state.ended or "interrupted"
                if state.ended:
                    break
    finally:
        run.report.close()
    return state


def batches(run: TrainingRun) -> Iterator[Indices]:
    """The global batches from where the run stands, epoch after epoch."""
    state = run.state
    while True:
        epoch = run.task.plan(state.epoch)
        while state.batch < len(epoch):
            state.batch += 1
            yield epoch[state.batch - 1]
        state.epoch, state.batch = state.epoch + 1, 0


def update(run: TrainingRun, batch: Indices, interrupted: bool) -> StepResult:
    """One update on a global batch; this rank computes every world-th piece of it."""
    state, settings, ranks = run.state, run.config.train, run.ranks
    cut = run.task.cut(batch, state.update + 1, settings.micro_batches * ranks.world)
    mine = [(i, piece) for i, piece in enumerate(cut.pieces) if i % ranks.world == ranks.rank]
    pieces = [(i, piece().to(ranks.device)) for i, piece in mine if piece is not None]
    rate = learning_rate(state.update + 1, state.total, settings, run.config.model.d_model)
    with compiling() if settings.compile else nullcontext():
        outcome = apply_update(
            pieces, run.loss_of, run.gradients, run.optimiser, ranks,
            settings=settings, update=state.update + 1, tokens=cut.tokens, rate=rate, interrupted=interrupted,
        )  # fmt: skip
    state.update += 1
    state.tokens += cut.tokens
    return outcome


@contextmanager
def compiling() -> Iterator[None]:
    """What torch.compile does not find on this machine, in one sentence."""
    from torch._dynamo.exc import TorchDynamoException

    try:
        yield
    except TorchDynamoException as error:
        reason = str(error).strip().splitlines()[0]
        raise TrainingError(
            f"torch.compile made no kernels for the model: {reason}; leave out train.compile, or install what it needs."
        ) from None


def validation_due(state: TrainState) -> bool:
    """At the end, and at every interval, but for one that is followed by the end of a given time in less than half."""
    if state.update >= state.total:
        return True
    ending = state.planned and state.total - state.update < state.every / 2
    return state.update - state.validated >= state.every and not ending


def validate(run: TrainingRun) -> None:
    """Measure the last weights or a mean, publish it if it is the best so far, and decide whether to go on."""
    state, settings, clock = run.state, run.config.train, run.clock
    began = clock.now()
    if run.ranks.main:
        checkpoint.add_weights(run.checkpoints, run.model, state, settings.average_checkpoints)
        found = averaging.choose(run)
        score = run.task.rank(found.scores)
        better = state.best is None or score > state.best
        state.best, state.best_update = (score, state.update) if better else (state.best, state.best_update)
        state.stale = 0 if better else state.stale + 1
        record = {"update": state.update, **found.scores, **found.record}
        run.report.record(record)
        run.report.validation(record, better, [*found.lines, *run.show(run.averaged)])
        if better:
            run.publish(run.averaged, state, found.scores)
    state.validated = state.update
    state.validation_seconds = clock.now() - began
    state.ended = why_ended(run)
    ended = run.ranks.from_main(float(bool(state.ended)))  # the main rank alone knows the scores
    state.ended = (state.ended or "the main rank has ended") if ended else ""
    if settings.time and not settings.checkpoint_every:
        state.every = int(run.ranks.from_main(max(state.every, clock.interval(0))))


def why_ended(run: TrainingRun) -> str:
    """Why training ends after this validation; nothing if it goes on."""
    state, settings = run.state, run.config.train
    if settings.patience and state.stale >= settings.patience:
        return f"no better score in {state.stale} validations"
    if settings.time and updates_in_time(run) <= state.update and state.update < settings.max_updates:
        return TIME_IS_UP
    return ALL_DONE if state.update >= state.total else ""


def save(run: TrainingRun) -> None:
    """Write a checkpoint, on the main rank; all go on from its weights."""
    state, clock = run.state, run.clock
    began = clock.now()
    state.elapsed = clock.elapsed()
    run.ranks.share(run.model.parameters())
    if run.ranks.main:
        checkpoint.save(run.checkpoints, run.model, run.optimiser, state, run.config.train.keep_checkpoints)
        checkpoint.forget_weights(run.checkpoints)
    run.ranks.from_main(0.0)
    if state.validation_seconds is not None:
        state.validation_seconds += clock.now() - began
    clock.skip()


def plan_for_time(run: TrainingRun) -> None:
    """With a time to keep, set the number of updates so that the schedule, and all that follows it, ends with it."""
    state, settings = run.state, run.config.train
    if not settings.time:
        return
    total = int(run.ranks.from_main(updates_in_time(run) if run.clock.ready() else 0))
    if total and not state.planned:
        state.every = settings.checkpoint_every or run.clock.interval(total)
    if total:
        state.total, state.planned = total, True


def updates_in_time(run: TrainingRun) -> int:
    """How many updates there will be when the time given is over but for what comes after the last one."""
    return run.clock.updates_in_time(run.config.train.max_updates, run.closing_searches)


def default_interval(total: int) -> int:
    """Updates between two checkpoints: twenty in a run, at least a hundred updates and at most five thousand apart."""
    return max(1, min(total, max(100, min(5000, total // 20))))


def report_progress(run: TrainingRun, outcome: StepResult, validating: bool) -> None:
    """Show and record the mean loss since the last time, every few seconds and before every validation."""
    state, clock = run.state, run.clock
    clock.loss += outcome.loss * outcome.tokens
    if not validating and clock.since_record() < LOG_SECONDS:
        return
    record: Record = {
        "update": state.update,
        "loss": clock.loss / clock.tokens,
        "learning_rate": learning_rate(state.update, state.total, run.config.train, run.config.model.d_model),
        "gradient_norm": outcome.norm,
        "tokens_per_second": clock.tokens / clock.since_record(),
        "epoch": state.epoch,
        "seconds": clock.elapsed(),
    }
    if outcome.ponder is not None:
        record["ponder"] = outcome.ponder
    run.report.record(record)
    planning = bool(run.config.train.time) and not state.planned
    total = updates_in_time(run) if planning else state.total
    run.report.progress(record, total, state.update_seconds)
    clock.restart()


@contextmanager
def interruptions() -> Iterator[Callable[[], bool]]:
    """Ctrl-C and SIGTERM set a flag, so that the update under way is finished and saved; the second time they stop."""
    asked: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
