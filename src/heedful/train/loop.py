"""The loop: rate, update, report, and now and then average, validate, publish, save.

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

import torch

from heedful.config import RunConfig, seconds
from heedful.errors import TrainingError
from heedful.loss import Loss
from heedful.model import Model, build
from heedful.ops.precision import computing_in
from heedful.train import checkpoint
from heedful.train.adam import Optimiser
from heedful.train.checkpoint import State
from heedful.train.learning import Learning
from heedful.train.ranks import Ranks
from heedful.train.report import Record, Report
from heedful.train.schedule import learning_rate
from heedful.train.task import Indices, Piece, Scores, Task
from heedful.train.update import Gradients, Outcome, apply_update

LOG_SECONDS = 2.0  # how often progress is shown
MEASURE_SECONDS = 20.0  # how long speed is measured before a run of a given time is planned, if it is long enough
TIME_IS_UP = "time is up"
TRAINING_SHARE = 0.96  # of the time given; the rest is for the last validation


@dataclass
class Run:
    """Everything a training run is made of."""

    config: RunConfig
    task: Task
    model: Model
    optimiser: Optimiser
    ranks: Ranks
    report: Report
    checkpoints: Path
    measure: Callable[[Model], Scores]  # what using a model on the validation set adds to the loss, such as BLEU
    publish: Callable[[Model, State, Scores], None]  # what happens with a model that is the best so far
    show: Callable[[Model], list[str]] = lambda model: []  # lines by which one sees what a model has learned
    state: State = field(default_factory=State)

    def __post_init__(self) -> None:
        self.gradients = Gradients(self.model)
        self.learning = Learning(self.model, self.task, self.config, self.ranks.device)
        self.averaged = build(self.config.model).to(self.ranks.device).eval()

    def loss_of(self, piece: Piece) -> Loss:
        """The loss that an update lowers."""
        return self.learning.loss(piece)


def train(run: Run) -> State:
    """Train from where `run.state` stands to the end, or until a signal asks to stop."""
    state, settings = run.state, run.config.train
    if state.total == 0:
        state.total = settings.max_updates
        state.every = settings.checkpoint_every or default_interval(state.total)
    state.given = seconds(settings.time) if settings.time else 0.0
    run.model.train()
    run.report.start(state.update, state.total)
    clock = Clock(state)
    try:
        with interruptions() as interrupted:
            for batch in batches(run):
                outcome = update(run, batch, interrupted())
                clock.tick(outcome.tokens)
                report_progress(run, clock, outcome)
                plan_for_time(run, clock)
                regular = state.update % state.every == 0 or state.update >= state.total
                if regular:
                    validate(run, clock)
                if regular or outcome.interrupted:
                    save(run, clock)
                if outcome.interrupted:
                    state.ended = state.ended or "interrupted"
                if state.ended:
                    break
    finally:
        run.report.close()
    return state


def batches(run: Run) -> Iterator[Indices]:
    """The global batches from where the run stands, epoch after epoch."""
    state = run.state
    while True:
        epoch = run.task.plan(state.epoch)
        while state.batch < len(epoch):
            state.batch += 1
            yield epoch[state.batch - 1]
        state.epoch, state.batch = state.epoch + 1, 0


def update(run: Run, batch: Indices, interrupted: bool) -> Outcome:
    """One update on a global batch; this rank computes every world-th piece of it."""
    state, settings, ranks = run.state, run.config.train, run.ranks
    cut = run.task.cut(batch, state.update + 1, settings.accumulate * ranks.world)
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


def validate(run: Run, clock: Clock) -> None:
    """Average the last weights, measure them, publish them if they are the best so far, and decide whether to go on."""
    state, settings = run.state, run.config.train
    if run.ranks.main:
        checkpoint.add_weights(run.checkpoints, run.model, state, settings.average)
        run.averaged.load_state_dict(checkpoint.average(run.checkpoints, state.averaged))
        scores = validation_scores(run) | run.measure(run.averaged)
        score = run.task.rank(scores)
        better = state.best is None or score > state.best
        state.best, state.best_update = (score, state.update) if better else (state.best, state.best_update)
        state.stale = 0 if better else state.stale + 1
        run.report.record({"update": state.update, **scores})
        run.report.validation({"update": state.update, **scores}, better, run.show(run.averaged))
        if better:
            run.publish(run.averaged, state, scores)
    if settings.patience and state.stale >= settings.patience:
        state.ended = f"no better score in {state.stale} validations"
    elif state.update >= state.total:
        state.ended = "all updates done"
    elif settings.time and clock.elapsed() >= seconds(settings.time):
        state.ended = TIME_IS_UP
    ended = run.ranks.from_main(float(bool(state.ended)))  # the main rank alone knows the scores
    state.ended = (state.ended or "the main rank has ended") if ended else ""
    clock.skip()


def validation_scores(run: Run) -> Scores:
    """What follows from the loss of the averaged model on the whole held-out part, without smoothing."""
    total, tokens, steps, halted = 0.0, 0, 0.0, 0.0
    with torch.inference_mode(), computing_in(run.learning.precision, run.ranks.device):
        for piece in run.task.validation():
            loss = run.task.loss(run.averaged, piece.to(run.ranks.device))
            total, tokens = total + float(loss.likelihood), tokens + loss.tokens
            if loss.pondered is not None:
                steps, halted = steps + float(loss.pondered[0]), halted + float(loss.pondered[1])
    return run.task.scores(total, tokens) | ({"valid_ponder": steps / halted} if halted else {})


def save(run: Run, clock: Clock) -> None:
    """Write a checkpoint, on the main rank; all go on from its weights."""
    run.state.elapsed = clock.elapsed()
    run.ranks.share(run.model.parameters())
    if run.ranks.main:
        checkpoint.save(run.checkpoints, run.model, run.optimiser, run.state, run.config.train.keep_checkpoints)
        checkpoint.forget_weights(run.checkpoints)
    run.ranks.from_main(0.0)


def plan_for_time(run: Run, clock: Clock) -> None:
    """With a time to keep, set the number of updates so that the schedule ends with it."""
    state, settings = run.state, run.config.train
    if not settings.time:
        return
    given = seconds(settings.time)
    known = clock.warm() >= min(MEASURE_SECONDS, given / 20) or clock.elapsed() >= given / 2
    first = not state.planned and known
    if run.ranks.from_main(float(first or (state.planned and state.update % state.every == 0))):
        state.total = int(run.ranks.from_main(updates_in_time(run, clock)))
        if not state.planned:
            state.every = settings.checkpoint_every or default_interval(state.total)
            state.planned = True


def updates_in_time(run: Run, clock: Clock) -> int:
    """How many updates there will be when the time given is over, at the speed so far."""
    state, settings = run.state, run.config.train
    assert settings.time
    left = max(0.0, seconds(settings.time) * TRAINING_SHARE - clock.elapsed())
    return min(settings.max_updates, state.update + max(1, int(left / clock.seconds_per_update(validating=True))))


def default_interval(total: int) -> int:
    """Updates between two checkpoints: twenty in a run, at least a hundred updates and at most five thousand apart."""
    return max(1, min(total, max(100, min(5000, total // 20))))


def report_progress(run: Run, clock: Clock, outcome: Outcome) -> None:
    """Show and record the mean loss since the last time, every few seconds and at every checkpoint."""
    state = run.state
    clock.loss += outcome.loss * outcome.tokens
    if state.update % state.every and clock.since_record() < LOG_SECONDS and state.update < state.total:
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
    total = updates_in_time(run, clock) if planning else state.total
    run.report.progress(record, total, clock.seconds_per_update())
    clock.restart()


class Clock:
    """Time spent training, in all sessions together, and the speed since the last record."""

    def __init__(self, state: State) -> None:
        self.before = state.elapsed
        self.began = self.recorded = time.monotonic()
        self.after_first: float | None = None  # when the first update of this session was done
        self.first = state.update
        self.state = state
        self.outside = 0.0  # seconds in validation
        self.restart()

    def tick(self, tokens: int) -> None:
        self.tokens += tokens
        if self.after_first is None:
            self.after_first = time.monotonic()

    def restart(self) -> None:
        self.tokens, self.loss = 0, 0.0
        self.recorded = time.monotonic()

    def skip(self) -> None:
        """Leave a validation, which started at the last record, out of the speed."""
        self.outside += time.monotonic() - self.recorded
        self.restart()

    def since_record(self) -> float:
        return max(1e-9, time.monotonic() - self.recorded)

    def elapsed(self) -> float:
        return self.before + time.monotonic() - self.began

    def warm(self) -> float:
        """Seconds of this session since its first update, in which kernels are made and memory is found."""
        return 0.0 if self.after_first is None else time.monotonic() - self.after_first

    def seconds_per_update(self, validating: bool = False) -> float:
        """Mean of this session, with or without its validations; of its first update until there is another one."""
        updates = self.state.update - self.first
        spent = self.warm() if updates > 1 else time.monotonic() - self.began
        return (spent - (0.0 if validating else self.outside)) / max(1, updates - 1)


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
