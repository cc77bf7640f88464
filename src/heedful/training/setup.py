"""From settings to a run: the output folder, the corpus, the open settings, the model, and where it stood.

A run keeps its settings in `run.json`, so resuming takes them from there and refuses others.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from heedful import config as settings
from heedful.config import SECTIONS, RunConfig, parse_duration
from heedful.config.schema import Section
from heedful.data.corpus import Accept
from heedful.errors import FolderError, SettingError, quote
from heedful.files import read_json
from heedful.model.transformer import Model, build_model
from heedful.storage import folder as model_folder
from heedful.storage.atomic import atomic_write, check_folder, explain_os_errors
from heedful.storage.folder import ModelFolder, parameter_count
from heedful.training import checkpoint
from heedful.training.checkpoint import TrainState
from heedful.training.checks import check_reading, check_run
from heedful.training.distributed import Distributed
from heedful.training.init.pretrained_embeddings import use_pretrained_embeddings
from heedful.training.loop import TIME_IS_UP, TrainingRun, default_interval
from heedful.training.run_report import Column, RunReport
from heedful.training.schedule import peak_rate
from heedful.training.step import build_optimizer
from heedful.training.tasks import task_for
from heedful.training.tasks.task import Scores, Task, layers
from heedful.training.time_budget import affordable, passes_in_time, thorough

SETTINGS, CHECKPOINTS = "run.json", "checkpoints"
PONDER = Column("valid_ponder", "steps a token")  # where tokens halt
FORMAT = 2  # of run.json and checkpoints; raised when older code could misread them
NO_LIMIT = 10**9  # updates, where time is the limit
# What may differ when a run is resumed: the corpus is known by its content, and these do not change what was learned.
MAY_CHANGE = {
    "data": {
        "source", "target", "pairs", "valid_source", "valid_target", "valid_pairs", "cache_dir",
        "text", "valid_text", "labeled", "valid_labeled",
    },
    "train": {"max_updates", "time", "patience", "threads", "checkpoint_every", "keep_checkpoints", "init", "sample"},
}  # fmt: skip


def open_run(
    asked: RunConfig,
    out: Path,
    resume: bool,
    measure: Callable[[ModelFolder], Scores],
    console: Console,
    show: Callable[[ModelFolder], list[str]] = lambda folder: [],
    open_init: Callable[[Path], ModelFolder] = model_folder.load_folder,
) -> TrainingRun:
    """Everything that has to be there before the first update.

    `measure` uses a model on the validation set, `show` lets it do something to look at, and `open_init` opens the
    folder that training starts from.
    """
    ranks = Distributed(asked.train.device)
    report = RunReport(out, console if ranks.main else None)
    earlier = _check_folder(out, resume)
    config = _resumed(asked, earlier, out) if earlier else asked
    init = open_init(config.train.init) if config.train.init else None
    check_folder(out)
    if earlier is None:
        check_run(asked, task_for(asked, init), init)

    def accept(corpus: str) -> None:
        if earlier is not None and earlier.get("corpus") != corpus:
            raise FolderError(
                f"{out} was trained on another corpus; resume it with the same files, or train its model on these with"
                f" --init {out} and another --out."
            )

    task = _open_task(config, out, ranks, report, init, accept)
    if config.train.threads:
        torch.set_num_threads(config.train.threads)
    threads = torch.get_num_threads()
    if earlier is not None and (before := earlier.get("threads", threads)) != threads:
        report.say(
            f"{threads} CPU thread{'s' * (threads > 1)} now and {before} before: sums are rounded in another order, so "
            "the weights will not be bit-identical to those of a run that was not interrupted"
        )
    if earlier is None:
        config = resolve(asked, task, init, ranks, report)
    check_reading(config, type(task))
    task.prepare(config)
    report.columns = (*task.columns, *([PONDER] if config.model.act_halting else []))
    if ranks.main:
        with explain_os_errors(out):
            out.mkdir(parents=True, exist_ok=True)
        stored = {
            "format": FORMAT,
            "corpus": task.corpus.path.name,
            "threads": threads,
            "config": config.model_dump(mode="json", exclude_unset=True),
            "asked": asked.model_dump(mode="json", exclude_unset=True) if earlier is None else earlier.get("asked", {}),
        }
        atomic_write(out / SETTINGS, json.dumps(stored, indent=2))
    begins = not checkpoint.steps(out / CHECKPOINTS)
    model = _fresh_model(config, out, task, init, report, begins)
    ranks.share(model.parameters())
    model.to(ranks.device)

    def folder(averaged: Model) -> ModelFolder:
        return ModelFolder(averaged, *task.tokenizers, config.search, out)  # type: ignore[arg-type]

    run = TrainingRun(
        config=config,
        task=task,
        model=model,
        optimiser=build_optimizer(model, config.train),
        ranks=ranks,
        report=report,
        checkpoints=out / CHECKPOINTS,
        measure=lambda averaged: measure(folder(averaged)),
        publish=lambda averaged, state, scores: model_folder.save_folder(
            folder(averaged), task.card(config, trained(state), scores)
        ),
        show=lambda averaged: show(folder(averaged)),
    )
    if earlier is not None:
        _restore(run)
    _describe(run)
    return run


def resolve(asked: RunConfig, task: Task, init: ModelFolder | None, ranks: Distributed, report: RunReport) -> RunConfig:
    """Settle what the user left open, and let the time decide where there is one."""

    def passes(config: RunConfig) -> float:
        return ranks.from_main(passes_in_time(task, config, ranks.device, ranks.world) if ranks.main else 0.0)

    config = suited = _shared_out(task.resolve(asked, init), asked, ranks)
    if init is None:
        config = affordable(suited, asked, task, passes, report.say)
        if config.preset == suited.preset:
            config = thorough(config, asked, passes, report.say)
    if asked.train.time and "max_updates" not in asked.train.model_fields_set:
        config = config.replace(train={"max_updates": NO_LIMIT})
    return config


def _shared_out(config: RunConfig, asked: RunConfig, ranks: Distributed) -> RunConfig:
    """Pieces that one GPU would take one after the other, on several at once."""
    if ranks.device.type == "cpu" or "micro_batches" in asked.train.model_fields_set:
        return config
    return config.replace(train={"micro_batches": max(1, config.train.micro_batches // ranks.world)})


def trained(state: TrainState) -> str:
    """For the card of a model: how long it was trained."""
    averaged = f"; the weights of the last {state.average} checkpoints are averaged" if state.average > 1 else ""
    return f"Trained for {state.update:,} updates on {state.tokens:,} tokens{averaged}."


def _check_folder(out: Path, resume: bool) -> dict[str, Any] | None:
    """The settings of the run that is there; None for a new one."""
    if resume:
        earlier = read_json(out, SETTINGS)
        if earlier is not None and (written := earlier.get("format", 1)) != FORMAT:
            raise FolderError(
                f"{out} is a run in format {written!r:.20} and this version resumes format {FORMAT}; start a new run "
                "with another --out, or resume it with the version that began it."
            )
        if earlier is None:
            advice = "give the --out of an earlier run" if out.exists() else "leave out --resume to start one"
            raise FolderError(f"{out} holds no run to resume, as it has no {SETTINGS}; {advice}.")
        return earlier
    if out.exists() and not out.is_dir():
        raise FolderError(f"{out} is a file, and --out is a folder for the model; choose another --out.")
    if out.exists() and any(out.iterdir()):
        raise FolderError(f"{out} exists already; use --resume to go on with its run, or choose another --out.")
    return None


def _open_task(
    config: RunConfig, out: Path, ranks: Distributed, report: RunReport, init: ModelFolder | None, accept: Accept
) -> Task:
    """The task with its encoded corpus; the main rank encodes it and the others find it ready."""
    kind = task_for(config, init)
    folder = config.data.cache_dir or out.parent / ".heedful"
    if not ranks.main:
        ranks.from_main(0.0)
        return kind.open(config, folder, lambda message: None, init, accept)
    with explain_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    task = kind.open(config, folder, report.say, init, accept)
    for line in task.corpus.report.lines():
        report.say(line)
    report.say(f"encoded corpus: {task.corpus.path}{', ready from an earlier run' if task.corpus.reused else ''}")
    ranks.from_main(0.0)
    return task


def _resumed(asked: RunConfig, earlier: dict[str, Any], out: Path) -> RunConfig:
    """The settings that the run began with, and those of the new ones that may change.

    What was asked for at its beginning may be asked for again, even if the corpus made something else of it.
    """
    config = settings.validate_section(RunConfig, earlier.get("config", {}), str(out / SETTINGS))
    before = settings.validate_section(RunConfig, earlier.get("asked", {}), str(out / SETTINGS), draft=True)
    changes: dict[str, dict[str, Any]] = {}

    def compare(name: str, key: str, new: Section, old: Section, first: Section) -> None:
        now, was = getattr(new, key), getattr(old, key)
        if now != was and not (key in first.model_fields_set and now == getattr(first, key)):
            raise SettingError(
                f"{name} is {quote(now)} now and was {quote(was)} when {out} began; "
                "resume with the same settings, or start anew."
            )

    for name in ("preset", "task"):
        if getattr(asked, name):
            compare(name, name, asked, config, before)
    for section in SECTIONS:
        new = getattr(asked, section)
        for key in new.model_fields_set:
            if key in MAY_CHANGE.get(section, ()):
                changes.setdefault(section, {})[key] = getattr(new, key)
            else:
                compare(f"{section}.{key}", key, new, getattr(config, section), getattr(before, section))
    if asked.train.time and "max_updates" not in asked.train.model_fields_set | before.train.model_fields_set:
        changes["train"]["max_updates"] = NO_LIMIT
    return config.replace(**changes)


def _fresh_model(
    config: RunConfig, out: Path, task: Task, init: ModelFolder | None, report: RunReport, begins: bool
) -> Model:
    """The model, ready to learn if the run `begins`, and else to be filled with what it has learned."""
    torch.manual_seed(config.train.seed)
    model = build_model(config.model)
    model_folder.check_positions(config.model, parameter_count(model), out / SETTINGS)
    if init is not None:
        same = config.model.labels == init.model.config.labels
        weights = {k: v for k, v in init.model.state_dict().items() if same or not k.startswith("classifier.")}
        model.load_state_dict(weights, strict=False)
        report.say(f"weights from {init.path}")
    elif begins and (begun := task.begin(model, config)):
        report.say(begun)
    if config.train.pretrained_embeddings:
        target, source = task.tokenizers
        counts = use_pretrained_embeddings(
            model, source, target, config.train.pretrained_embeddings, config.train.freeze_embeddings
        )
        report.say(f"word vectors from {config.train.pretrained_embeddings}: {' and '.join(map(str, counts))} tokens")
    return model


def _restore(run: TrainingRun) -> None:
    """Go on from the last checkpoint; also of an ended run that has more time or patience, or updates and no time."""
    path = checkpoint.latest(run.checkpoints)
    if path is None:
        run.report.say("no checkpoint yet: the run starts from the beginning")
        return
    run.state = state = checkpoint.load(path, run.model, run.optimiser)
    train = run.config.train
    given = parse_duration(train.time) if train.time else 0.0
    longer = given > (state.given or (given if state.planned else 0.0))  # planned: by a time that is not known
    if not given:
        state.total = train.max_updates
    elif longer:  # at the speed so far, until it is planned anew
        state.total = min(train.max_updates, max(1, int(state.update * given / state.elapsed)))
        state.every = state.every if state.planned else default_interval(state.total)
        state.planned = True
    state.every = train.checkpoint_every or state.every
    patient = not train.patience or state.stale < train.patience
    if patient and state.update < state.total and (longer or state.ended != TIME_IS_UP):
        state.ended = ""
    if lost := checkpoint.drop_lost(run.checkpoints, state):
        run.report.say(f"weights of update {', '.join(map(str, lost))} are gone: the mean is of those that are left")
    run.report.say(f"resumed from {path} at update {state.update:,}")


def _describe(run: TrainingRun) -> None:
    model, train = run.config.model, run.config.train
    run.report.say(
        f"model: {run.config.preset or 'as given'}, {layers(run.config)}, "
        f"{parameter_count(run.model):,} parameters\n"
        f"training: {run.learning.described()}, "
        f"{run.ranks.world} process{'es' if run.ranks.world > 1 else ''}, "
        f"{train.batch_tokens:,} tokens an update, {train.schedule} schedule to a peak of "
        f"{peak_rate(train, model.d_model):.2e}, "
        + (f"weight decay {train.weight_decay:g}, " if train.weight_decay else "")
        + (f"{train.time}" if train.time else f"{train.max_updates:,} updates")
    )
