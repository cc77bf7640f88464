"""Set up a run: output folder, encoded corpus, resolved settings, model, optimizer, and the checkpoint to resume from.

A run keeps its settings in `run.json`; resuming reads them from there and refuses different ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from heedful import config as settings
from heedful.config import SECTIONS, RunConfig, Section, parse_duration
from heedful.data.corpus import CorpusCache
from heedful.data.parallel_corpus import ParallelCorpus
from heedful.data.token_trees import TokenTrees, TreeBank
from heedful.errors import FolderError, SettingError, quote
from heedful.files import read_json
from heedful.interop import open_folder
from heedful.model.transformer import EncoderDecoder, Model, build_model
from heedful.storage import folder as model_folder
from heedful.storage.atomic import atomic_write, check_folder, explain_os_errors
from heedful.storage.folder import RUN_SETTINGS, ModelFolder, parameter_count
from heedful.training import checkpoint
from heedful.training.checks import check_options, check_run
from heedful.training.distributed import Distributed
from heedful.training.init.pretrained_embeddings import use_pretrained_embeddings
from heedful.training.loop import CHECKPOINTS, TIME_IS_UP, TrainingRun, default_interval
from heedful.training.preset_selection import add_rdrop, fit_preset, passes_in_time, resolve_settings
from heedful.training.run_report import Column, RunReport
from heedful.training.schedule import peak_rate
from heedful.training.step import build_optimizer
from heedful.training.tasks import task_for
from heedful.training.tasks.task import Task, describe_layers

PONDER = Column("valid_ponder", "steps a token")  # adaptive computation time
EXPERTS = Column("valid_busiest_expert", "busiest expert (%)", 0)
FORMAT = 2  # of run.json and checkpoints; raised when older code could misread them
TREE_SAMPLE = 1000  # training sentences whose trees are looked up before training
NO_LIMIT = 10**9  # updates, where time is the limit
# Settings that may change on resume: a corpus is identified by its content, the others do not affect earlier updates.
MAY_CHANGE = {
    "data": {
        "source", "target", "pairs", "valid_source", "valid_target", "valid_pairs", "cache_dir",
        "source_language", "target_language",
        "text", "valid_text", "labeled", "valid_labeled", "audio", "valid_audio",
    },
    "train": {"max_updates", "time", "patience", "threads", "checkpoint_every", "keep_checkpoints", "init", "sample"},
}  # fmt: skip


def open_run(
    user_config: RunConfig, out: Path, resume: bool, report: RunReport, task_type: type[Task] | None = None
) -> TrainingRun:
    """Everything that has to be ready before the first update; `task_type` replaces the task of the configuration."""
    distributed = Distributed(user_config.train.device)
    report.enabled = distributed.main
    previous = _check_folder(out, resume)
    config = _resume_config(user_config, previous, out) if previous else user_config
    init = open_folder(config.train.init) if config.train.init else None
    task_type = task_type or task_for(config, init)
    check_folder(out)
    if previous is None:
        check_run(user_config, task_type, init)

    def accept(corpus: str) -> None:
        if previous is not None and previous.get("corpus") != corpus:
            raise FolderError(
                f"{out} was trained on another corpus; resume it with the same files, or start a run in another folder"
                f" with init {out}."
            )

    cache = CorpusCache(cache_folder(config, out), report.log, accept)
    task = _open_task(partial(task_type.open, config, init), cache, distributed, report)
    if config.train.threads:
        torch.set_num_threads(config.train.threads)
    threads = torch.get_num_threads()
    if previous is not None and (before := previous.get("threads", threads)) != threads:
        report.log(
            f"{threads} CPU thread{'s' * (threads > 1)} now and {before} before: sums are rounded in another order, so "
            "the weights will not be bit-identical to those of a run that was not interrupted"
        )
    if previous is None:
        config = resolve(user_config, task, init, distributed, report)
    check_options(config, task_type)
    task.prepare(config)
    trees = _read_trees(config, task, report) if config.model.positions == "syntax" else None
    auxiliary = [PONDER] * config.model.act_halting + [EXPERTS] * bool(config.model.experts)
    report.columns, report.counted = (*task.columns, *auxiliary), task.counted
    if distributed.main:
        with explain_os_errors(out):
            out.mkdir(parents=True, exist_ok=True)
        requested = (
            previous.get("requested", {}) if previous else user_config.model_dump(mode="json", exclude_unset=True)
        )
        stored = {
            "format": FORMAT,
            "corpus": task.corpus.path.name,
            "threads": threads,
            "config": config.model_dump(mode="json", exclude_unset=True),
            "requested": requested,
        }
        atomic_write(out / RUN_SETTINGS, json.dumps(stored, indent=2))
    model = _new_model(config, out, task, init, report)
    if isinstance(model, EncoderDecoder):
        model.trees = trees
    distributed.share(model.parameters())
    model.to(distributed.device)
    optimizer = build_optimizer(model, config.train)
    run = TrainingRun(config, task, model, optimizer, distributed, report, out)
    if previous is not None:
        _restore(run)
    _describe(run)
    return run


def _read_trees(config: RunConfig, task: Task, report: RunReport) -> TokenTrees:
    """The trees of source sentences. Logs the share of a sample that has one; refuses trees of other sentences."""
    source = task.tokenizers[1]
    trees = TokenTrees(TreeBank(config.data.trees, source), source)
    if isinstance(task.corpus, ParallelCorpus):
        sources = task.corpus.train.sources
        for index in range(0, len(sources), max(1, len(sources) // TREE_SAMPLE)):
            trees.row(sources[index].tolist())
        report.log(f"trees: {trees.describe()}")
    return trees


def cache_folder(config: RunConfig, out: Path) -> Path:
    """Where encoded corpora are kept."""
    return config.data.cache_dir or out.parent / ".heedful"


def resolve(
    user_config: RunConfig, task: Task, init: ModelFolder | None, distributed: Distributed, report: RunReport
) -> RunConfig:
    """Fill in what the user left open, by the task and by the time budget."""

    def passes(config: RunConfig) -> float:
        return distributed.from_main(
            passes_in_time(task, config, distributed.device, distributed.world) if distributed.main else 0.0
        )

    config = suited = _divide_micro_batches(
        resolve_settings(task, user_config, init, report.log), user_config, distributed
    )
    if init is None:
        config = fit_preset(suited, user_config, task, passes, report.log)
        if config.preset == suited.preset:
            config = add_rdrop(config, user_config, passes, report.log)
    if user_config.train.time and "max_updates" not in user_config.train.model_fields_set:
        config = config.replace(train={"max_updates": NO_LIMIT})
    return config


def _divide_micro_batches(config: RunConfig, user_config: RunConfig, distributed: Distributed) -> RunConfig:
    """Fewer micro-batches on several GPUs, which compute them in parallel."""
    if distributed.device.type == "cpu" or "micro_batches" in user_config.train.model_fields_set:
        return config
    return config.replace(train={"micro_batches": max(1, config.train.micro_batches // distributed.world)})


def _check_folder(out: Path, resume: bool) -> dict[str, Any] | None:
    """`run.json` of the run to resume; None for a new run."""
    if resume:
        previous = read_json(out, RUN_SETTINGS)
        if previous is not None and (written := previous.get("format", 1)) != FORMAT:
            raise FolderError(
                f"{out} is a run in format {written!r:.20} and this version resumes format {FORMAT}; start a new run "
                "in another folder, or resume it with the version that began it."
            )
        if previous is None:
            advice = "give the folder of an earlier run" if out.exists() else "start one without resume"
            raise FolderError(f"{out} holds no run to resume, as it has no {RUN_SETTINGS}; {advice}.")
        return previous
    if out.exists() and not out.is_dir():
        raise FolderError(f"{out} is a file, and a run needs a folder; choose another one.")
    if out.exists() and any(out.iterdir()):
        raise FolderError(
            f"{out} exists already; resume its run (--resume, in Python resume=True), or choose another folder."
        )
    return None


def _open_task(
    open_: Callable[[CorpusCache], Task], cache: CorpusCache, distributed: Distributed, report: RunReport
) -> Task:
    """The task with its encoded corpus; the main rank encodes it and the others open it from the cache."""
    if not distributed.main:
        distributed.from_main(0.0)
        return open_(cache)
    with explain_os_errors(cache.folder):
        cache.folder.mkdir(parents=True, exist_ok=True)
    task = open_(cache)
    for line in task.corpus.report.lines():
        report.log(line)
    report.log(f"encoded corpus: {task.corpus.path}{', ready from an earlier run' if task.corpus.reused else ''}")
    distributed.from_main(0.0)
    return task


def _resume_config(user_config: RunConfig, previous: dict[str, Any], out: Path) -> RunConfig:
    """The settings of the earlier session, with those new ones that may change.

    A setting may be given again as in the first session, even if it was resolved to another value then.
    """
    config = settings.validate_section(RunConfig, previous.get("config", {}), str(out / RUN_SETTINGS))
    before = settings.validate_section(RunConfig, previous.get("requested", {}), str(out / RUN_SETTINGS), draft=True)
    changes: dict[str, dict[str, Any]] = {}

    def compare(name: str, key: str, new: Section, old: Section, first: Section) -> None:
        now, was = getattr(new, key), getattr(old, key)
        if now != was and not (key in first.model_fields_set and now == getattr(first, key)):
            raise SettingError(
                f"{name} is {quote(now)} now and was {quote(was)} when {out} began; "
                "resume with the same settings, or start anew."
            )

    for name in ("preset", "task"):
        if getattr(user_config, name):
            compare(name, name, user_config, config, before)
    for section in SECTIONS:
        new = getattr(user_config, section)
        for key in new.model_fields_set:
            if key in MAY_CHANGE.get(section, ()):
                changes.setdefault(section, {})[key] = getattr(new, key)
            else:
                compare(f"{section}.{key}", key, new, getattr(config, section), getattr(before, section))
    if (
        user_config.train.time
        and "max_updates" not in user_config.train.model_fields_set | before.train.model_fields_set
    ):
        changes["train"]["max_updates"] = NO_LIMIT
    return config.replace(**changes)


def _new_model(config: RunConfig, out: Path, task: Task, init: ModelFolder | None, report: RunReport) -> Model:
    """The model at update 0; the weights of a checkpoint may replace it."""
    torch.manual_seed(config.train.seed)
    model = build_model(config.model)
    model_folder.check_positions(config.model, parameter_count(model), out / RUN_SETTINGS)
    if init is not None:
        before = init.model.config
        same = (config.model.labels, config.model.label_kind) == (before.labels, before.label_kind)
        weights = {k: v for k, v in init.model.state_dict().items() if same or not k.startswith("classifier.")}
        model.load_state_dict(task.adopted(weights), strict=False)
        report.log(f"weights from {init.path}")
    elif not checkpoint.steps(out / CHECKPOINTS) and (line := task.initialize(model, config)):
        report.log(line)
    if config.train.pretrained_embeddings:
        target, source = task.tokenizers
        counts = use_pretrained_embeddings(
            model, source, target, config.train.pretrained_embeddings, config.train.freeze_embeddings
        )
        report.log(
            f"pretrained embeddings from {config.train.pretrained_embeddings}: {' and '.join(map(str, counts))} tokens"
        )
    return model


def _restore(run: TrainingRun) -> None:
    """Load the last checkpoint; an ended run continues if it now has more time, patience or updates."""
    path = checkpoint.latest(run.checkpoints)
    if path is None:
        run.report.log("no checkpoint yet: the run starts from the beginning")
        return
    run.state = state = checkpoint.load(path, run.model, run.optimizer)
    train = run.config.train
    budget = parse_duration(train.time) if train.time else 0.0
    longer = budget > (state.given or (budget if state.planned else 0.0))  # planned: by a time that is not known
    if not budget:
        state.total = train.max_updates
    elif longer:  # at the speed so far, until it is planned anew
        state.total = min(train.max_updates, max(1, int(state.update * budget / state.elapsed)))
        state.every = state.every if state.planned else default_interval(state.total)
        state.planned = True
    state.every = train.checkpoint_every or state.every
    patient = not train.patience or state.stale < train.patience
    if patient and state.update < state.total and (longer or state.ended != TIME_IS_UP):
        state.ended = ""
    if lost := checkpoint.drop_lost(run.checkpoints, state):
        run.report.log(
            f"weights of update {', '.join(map(str, lost))} are missing: checkpoint averaging continues without them"
        )
    run.report.log(f"resumed from {path} at update {state.update:,}")


def _describe(run: TrainingRun) -> None:
    model, train = run.config.model, run.config.train
    run.report.log(
        f"model: {run.config.preset or 'as given'}, {describe_layers(run.config)}, "
        f"{parameter_count(run.model):,} parameters\n"
        f"training: {run.backend.describe()}, "
        f"{run.distributed.world} process{'es' if run.distributed.world > 1 else ''}, "
        f"{train.batch_tokens:,} tokens per update, {train.schedule} schedule with a peak learning rate of "
        f"{peak_rate(train, model.d_model):.2e}, "
        + (f"weight decay {train.weight_decay:g}, " if train.weight_decay else "")
        + (f"{train.time}" if train.time else f"{train.max_updates:,} update{'s' * (train.max_updates != 1)}")
    )
