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
from heedful import folder as model_folder
from heedful.config import SECTIONS, RunConfig, preset_for
from heedful.data.store import Store, prepare
from heedful.disk import explained, write_file
from heedful.errors import FolderError, SettingError
from heedful.folder import Folder, parameter_count
from heedful.model import EncoderDecoder, build
from heedful.train import checkpoint
from heedful.train.checkpoint import State
from heedful.train.loop import Run, Scores
from heedful.train.ranks import Ranks
from heedful.train.report import Report
from heedful.train.schedule import peak_rate
from heedful.train.update import build_optimiser
from heedful.train.vectors import use_vectors

SETTINGS = "run.json"
NO_LIMIT = 10**9  # updates, where time is the limit
# What may differ when a run is resumed: the corpus is known by its content, and these do not change what was learned.
MAY_CHANGE = {
    "data": {"source", "target", "pairs", "valid_source", "valid_target", "valid_pairs", "store"},
    "train": {"max_updates", "time", "patience", "threads", "checkpoint_every", "keep_checkpoints"},
}


def open_run(asked: RunConfig, out: Path, resume: bool, translate: Callable[[Folder], Scores], console: Console) -> Run:
    """Everything that has to be there before the first update; `translate` measures a model on the validation set."""
    ranks = Ranks(asked.train.device)
    report = Report(out, console if ranks.main else None)
    earlier = _check_folder(out, resume)
    config = _resumed(asked, earlier, out) if earlier else asked
    store = _prepare(config, out, ranks, report)
    if earlier is None:
        config = resolve(asked, store)
    elif earlier.get("store") != store.path.name:
        raise FolderError(f"{out} was trained on another corpus; resume it with the same files, or start anew.")
    if asked.train.threads:
        torch.set_num_threads(asked.train.threads)
    if ranks.main:
        with explained(out):
            out.mkdir(parents=True, exist_ok=True)
        stored = {"store": store.path.name, "config": config.model_dump(mode="json", exclude_unset=True)}
        write_file(out / SETTINGS, json.dumps(stored, indent=2))
    model = _fresh_model(config, store, ranks, report)
    folder = Folder(model, store.target_tokenizer, store.source_tokenizer, config.search, out)
    run = Run(
        config=config,
        store=store,
        model=model,
        optimiser=build_optimiser(model, config.train),
        ranks=ranks,
        report=report,
        checkpoints=out / "checkpoints",
        translate=lambda averaged: translate(_with(folder, averaged)),
        publish=lambda averaged, state, scores: model_folder.save(_with(folder, averaged), card(config, state, scores)),
    )
    if earlier is not None:
        _restore(run)
    _describe(run)
    return run


def resolve(asked: RunConfig, store: Store) -> RunConfig:
    """Settle what the user left open: the preset, and what follows from the corpus and its vocabulary."""
    config = asked.with_preset(asked.preset or preset_for(len(store.train)))
    source, target = store.source_tokenizer, store.target_tokenizer
    model: dict[str, Any] = {
        "vocab_size": target.vocab_size,
        "source_vocab_size": None if store.joint else source.vocab_size,
        "pad_id": target.pad_id,
        "bos_id": target.bos_id,
        "eos_id": target.eos_id,
    }
    if not store.joint and "tie" not in asked.model.model_fields_set:
        model["tie"] = "target"
    if "max_length" not in asked.model.model_fields_set:
        model["max_length"] = 2 * (asked.data.max_length + 1)  # twice the longest source seen, for its translation
    train: dict[str, Any] = {}
    if asked.train.time and "max_updates" not in asked.train.model_fields_set:
        train["max_updates"] = NO_LIMIT
    return config.replace(model=model, train=train)


def card(config: RunConfig, state: State, scores: Scores) -> str:
    """README.md of a model folder: what it is and how it was made."""
    model = config.model
    return (
        "---\nlibrary_name: heedful\npipeline_tag: translation\nmetrics:\n- bleu\n- chrf\n---\n\n"
        f"# A translator trained with heedful\n\nPreset {config.preset}: {model.encoder_layers}+{model.decoder_layers} "
        f"layers, d_model {model.d_model}, d_ff {model.d_ff}, {model.n_heads} heads, {model.vocab_size:,} tokens.\n\n"
        f"Trained for {state.update:,} updates on {state.tokens:,} target tokens; the weights of the last "
        f"{len(state.averaged)} checkpoints are averaged. On the validation set: BLEU {scores['valid_bleu']:.2f}, "
        f"chrF {scores['valid_chrf']:.2f}, loss {scores['valid_loss']:.3f}.\n\n"
        "Use it: `heedful translate FOLDER < text`, or `heedful.load(FOLDER).translate([...])` in Python.\n"
    )


def _check_folder(out: Path, resume: bool) -> dict[str, Any] | None:
    """The settings of the run that is there; None for a new one."""
    if resume:
        if not (out / SETTINGS).is_file():
            raise FolderError(f"{out} holds no run to resume; leave out --resume to start one.")
        return model_folder.read_json(out / SETTINGS)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FolderError(f"{out} exists already; use --resume to go on with its run, or choose another --out.")
    return None


def _prepare(asked: RunConfig, out: Path, ranks: Ranks, report: Report) -> Store:
    """The encoded corpus; the main rank encodes it and the others find it ready."""
    folder = asked.data.store or out.parent / ".heedful"
    if not ranks.main:
        ranks.from_main(0.0)
        return prepare(asked, folder)
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
    store = prepare(asked, folder, report.say)
    for line in store.report.lines():
        report.say(line)
    report.say(f"encoded corpus: {store.path}{', ready from an earlier run' if store.reused else ''}")
    ranks.from_main(0.0)
    return store


def _resumed(asked: RunConfig, earlier: dict[str, Any], out: Path) -> RunConfig:
    """The settings that the run began with, and those of the new ones that may change."""
    config = settings.build(RunConfig, earlier.get("config", {}), str(out / SETTINGS))
    changes: dict[str, dict[str, Any]] = {}
    for section in SECTIONS:
        new, old = getattr(asked, section), getattr(config, section)
        for key in new.model_fields_set:
            if key in MAY_CHANGE.get(section, ()):
                changes.setdefault(section, {})[key] = getattr(new, key)
            elif getattr(new, key) != getattr(old, key):
                raise SettingError(
                    f"{section}.{key} is {getattr(new, key)!r} now and was {getattr(old, key)!r} when {out} began; "
                    "resume with the same settings, or start anew."
                )
    return config.replace(**changes)


def _fresh_model(config: RunConfig, store: Store, ranks: Ranks, report: Report) -> EncoderDecoder:
    torch.manual_seed(config.train.seed)
    model = build(config.model)
    assert isinstance(model, EncoderDecoder)
    if config.train.vectors:
        counts = use_vectors(
            model, store.source_tokenizer, store.target_tokenizer, config.train.vectors, config.train.freeze_vectors
        )
        report.say(f"word vectors from {config.train.vectors}: {' and '.join(map(str, counts))} tokens")
    return model.to(ranks.device)


def _restore(run: Run) -> None:
    path = checkpoint.latest(run.checkpoints)
    if path is None:
        run.report.say("no checkpoint yet: the run starts from the beginning")
        return
    run.state = state = checkpoint.load(path, run.model, run.optimiser)
    train = run.config.train
    if not train.time:
        state.total = train.max_updates
    state.every = train.checkpoint_every or state.every
    if state.update < state.total and state.ended == "all updates done":
        state.ended = ""
    run.report.say(f"resumed from {path} at update {state.update:,}")


def _with(folder: Folder, model: EncoderDecoder) -> Folder:
    return Folder(model, folder.tokenizer, folder.source_tokenizer, folder.search, folder.path)


def _describe(run: Run) -> None:
    model, train = run.config.model, run.config.train
    cores = f"{torch.get_num_threads()} threads" if run.ranks.device.type == "cpu" else str(run.ranks.device)
    run.report.say(
        f"model: {run.config.preset}, {model.encoder_layers}+{model.decoder_layers} layers, d_model {model.d_model}, "
        f"{parameter_count(run.model):,} parameters\n"
        f"training: {run.precision} on {cores}, {run.ranks.world} process{'es' if run.ranks.world > 1 else ''}, "
        f"{train.batch_tokens:,} tokens an update, {train.schedule} schedule to a peak of "
        f"{peak_rate(train, model.d_model):.2e}, "
        + (f"{train.time}" if train.time else f"{train.max_updates:,} updates")
    )
