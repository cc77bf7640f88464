"""The training loop: learning rate, update, report; at intervals validate, publish the model and save a checkpoint.

A task measures its own models, so the loop knows no search. `TrainState` is the position of a run, and all random
numbers follow from the seed and that position: a killed run resumes exactly.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from heedful.config import RunConfig, parse_duration
from heedful.data.batch import MicroBatch
from heedful.errors import TrainingError
from heedful.model.transformer import EncoderDecoder, Model, build_model
from heedful.ops.cross_entropy import Loss
from heedful.storage.folder import ModelFolder, save_folder
from heedful.training import averaging, checkpoint
from heedful.training.backend import LossBackend
from heedful.training.checkpoint import TrainState
from heedful.training.distributed import Distributed
from heedful.training.optim.adam import Optimizer
from heedful.training.run_report import Record, RunReport
from heedful.training.schedule import learning_rate
from heedful.training.step import Gradients, StepResult, apply_update
from heedful.training.tasks.task import Indices, Scores, Task
from heedful.training.time_budget import TimeBudget

LOG_SECONDS = 2.0  # how often progress is shown
CHECKPOINTS = "checkpoints"
ALL_DONE, TIME_IS_UP = "all updates done", "time is up"


@dataclass
class TrainingRun:
    """Everything a training run is made of."""

    config: RunConfig
    task: Task
    model: Model
    optimizer: Optimizer
    distributed: Distributed
    report: RunReport
    out: Path
    now: Callable[[], float] = time.monotonic
    state: TrainState = field(default_factory=TrainState)
    budget: TimeBudget = field(init=False)

    def __post_init__(self) -> None:
        self.gradients = Gradients(self.model)
        self.backend = LossBackend(self.model, self.task, self.config, self.distributed.device)
        self.averaged = build_model(self.config.model).to(self.distributed.device).eval()
        if isinstance(self.model, EncoderDecoder) and isinstance(self.averaged, EncoderDecoder):
            self.averaged.trees = self.model.trees
        self.checkpoints = self.out / CHECKPOINTS
        self.final_searches = self.task.count_final_searches()

    def start_time(self) -> None:
        """Count time from now on, after that of earlier sessions."""
        time = self.config.train.time
        self.state.given = parse_duration(time) if time else 0.0
        self.budget = TimeBudget(self.state, self.state.given, self.now)

    def model_folder(self) -> ModelFolder:
        """The averaged model as the folder that users load."""
        return ModelFolder(self.averaged, *self.task.tokenizers, self.config.search, self.out, self.task.folder_task)

    def loss_of(self, micro_batch: MicroBatch) -> Loss:
        """The loss that an update minimizes."""
        return self.backend.loss(micro_batch)

    def measure(self) -> Scores:
        """The task's own scores of the averaged model, such as BLEU."""
        return self.task.measure(self.model_folder(), self.budget, self.report.log)

    def publish(self, scores: Scores) -> None:
        """Write the averaged model to the run folder."""
        folder = self.task.published(self.model_folder())
        save_folder(folder, self.task.card(self.config, describe_training(self.state, self.task.counted), scores))


def train(run: TrainingRun) -> TrainState:
    """Train from `run.state` to the end, or until SIGINT or SIGTERM."""
    state, settings = run.state, run.config.train
    if state.total == 0:
        state.total = settings.max_updates
        state.every = settings.checkpoint_every or default_interval(state.total)
    run.model.train()
    run.report.start(state.update, state.total)
    run.start_time()
    try:
        with interruptions() as interrupted:
            for batch in batches(run):
                outcome = update(run, batch, interrupted())
                run.budget.tick(outcome.tokens)
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
            if interrupted() and state.ended != "interrupted":  # in the last validation, which has no next update
                run.report.log("interrupted after the last update, and saved; --resume (resume=True) finishes the run.")
                raise KeyboardInterrupt
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
    """One update on a global batch; each rank computes every world-th micro-batch (gradient accumulation)."""
    state, settings, distributed = run.state, run.config.train, run.distributed
    split = run.task.split_batch(batch, state.update + 1, settings.micro_batches * distributed.world)
    micro_batches = [
        (number, build().to(distributed.device))
        for number, build in enumerate(split.builders)
        if number % distributed.world == distributed.rank and build is not None
    ]
    rate = learning_rate(state.update + 1, state.total, settings, run.config.model.d_model)
    with compiling() if settings.compile else nullcontext():
        outcome = apply_update(
            micro_batches, run.loss_of, run.gradients, run.optimizer, distributed,
            settings=settings, update=state.update + 1, tokens=split.tokens, rate=rate, interrupted=interrupted,
        )  # fmt: skip
    state.update += 1
    state.tokens += split.tokens
    return outcome


@contextmanager
def compiling() -> Iterator[None]:
    """Turn an error of torch.compile into one sentence."""
    from torch._dynamo.exc import TorchDynamoException

    try:
        yield
    except TorchDynamoException as error:
        reason = str(error).strip().splitlines()[0]
        raise TrainingError(
            f"torch.compile could not compile the model: {reason}; leave out train.compile, or install what it needs."
        ) from None


def validation_due(state: TrainState) -> bool:
    """At the end and at every interval; the last interval of a timed run is skipped if the end is near."""
    if state.update >= state.total:
        return True
    ending = state.planned and state.total - state.update < state.every / 2
    return state.update - state.validated >= state.every and not ending


def validate(run: TrainingRun) -> None:
    """Measure the last or averaged weights, publish the model if it is the best so far, decide whether to stop."""
    state, settings, budget = run.state, run.config.train, run.budget
    began = budget.now()
    if run.distributed.main:
        checkpoint.add_weights(run.checkpoints, run.model, state, settings.average_checkpoints)
        choice = averaging.choose(run)
        score = run.task.rank(choice.scores)
        better = state.best is None or score > state.best
        state.best, state.best_update = (score, state.update) if better else (state.best, state.best_update)
        state.stale = 0 if better else state.stale + 1
        record = {"update": state.update, **choice.scores, **choice.record}
        run.report.record(record)
        run.report.validation(record, better, [*choice.lines, *run.task.show(run.model_folder())])
        if better:
            run.publish(choice.scores)
    state.validated = state.update
    state.validation_seconds = budget.now() - began
    state.ended = why_ended(run)
    ended = run.distributed.from_main(float(bool(state.ended)))  # the main rank alone knows the scores
    state.ended = (state.ended or "the main rank has ended") if ended else ""
    if settings.time and not settings.checkpoint_every:
        state.every = int(run.distributed.from_main(max(state.every, budget.interval(0))))


def why_ended(run: TrainingRun) -> str:
    """Why training ends after this validation; empty if it continues."""
    state, settings = run.state, run.config.train
    if settings.patience and state.stale >= settings.patience:
        return f"no better score in {state.stale} validations"
    if settings.time and updates_in_time(run) <= state.update and state.update < settings.max_updates:
        return TIME_IS_UP
    return ALL_DONE if state.update >= state.total else ""


def save(run: TrainingRun) -> None:
    """Write a checkpoint on the main rank; all ranks continue from its weights."""
    state, budget = run.state, run.budget
    began = budget.now()
    state.elapsed = budget.elapsed()
    run.distributed.share(run.model.parameters())
    if run.distributed.main:
        checkpoint.save(run.checkpoints, run.model, run.optimizer, state, run.config.train.keep_checkpoints)
        checkpoint.delete_unused_weights(run.checkpoints)
    run.distributed.from_main(0.0)
    if state.validation_seconds is not None:
        state.validation_seconds += budget.now() - began
    budget.skip()


def plan_for_time(run: TrainingRun) -> None:
    """Set the number of updates of a timed run, so that the learning-rate schedule ends with the time budget."""
    state, settings = run.state, run.config.train
    if not settings.time:
        return
    total = int(run.distributed.from_main(updates_in_time(run) if run.budget.ready() else 0))
    if total and not state.planned:
        state.every = settings.checkpoint_every or run.budget.interval(total)
    if total:
        state.total, state.planned = total, True


def updates_in_time(run: TrainingRun) -> int:
    """Updates that fit into the time budget, less the time that the final searches take."""
    return run.budget.updates_in_time(run.config.train.max_updates, run.final_searches)


def describe_training(state: TrainState, counted: str) -> str:
    """How long a model was trained, for its model card."""
    averaged = f"; the weights of the last {state.average} checkpoints are averaged" if state.average > 1 else ""
    return f"Trained for {state.update:,} update{'s' * (state.update != 1)} on {state.tokens:,} {counted}{averaged}."


def default_interval(total: int) -> int:
    """Updates between two checkpoints: a twentieth of the run, at least 100 and at most 5,000."""
    return max(1, min(total, max(100, min(5000, total // 20))))


def report_progress(run: TrainingRun, outcome: StepResult, validating: bool) -> None:
    """Record the mean loss since the last record, every few seconds and before every validation."""
    state, budget = run.state, run.budget
    budget.loss += outcome.loss * outcome.tokens
    if not validating and budget.since_record() < LOG_SECONDS:
        return
    record: Record = {
        "update": state.update,
        "loss": budget.loss / budget.tokens,
        "learning_rate": learning_rate(state.update, state.total, run.config.train, run.config.model.d_model),
        "gradient_norm": outcome.norm,
        "tokens_per_second": budget.tokens / budget.since_record(),
        "epoch": state.epoch,
        "seconds": budget.elapsed(),
    }
    if outcome.ponder is not None:
        record["ponder"] = outcome.ponder
    if outcome.busiest_expert is not None:
        record["busiest_expert"] = outcome.busiest_expert
    run.report.record(record)
    planning = bool(run.config.train.time) and not state.planned
    total = updates_in_time(run) if planning else state.total
    run.report.progress(record, total, state.update_seconds)
    budget.restart()


@contextmanager
def interruptions() -> Iterator[Callable[[], bool]]:
    """SIGINT (Ctrl-C) and SIGTERM set a flag, so that the current update is finished and saved; a second one raises.

    Python handles signals in the main thread only; a run in another thread is not interrupted by them.
    """
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
