"""Settings that follow from the time budget: the largest preset that makes enough epochs, and R-Drop."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from time import perf_counter

import torch

from heedful.config import PRESETS, RunConfig, parse_duration
from heedful.config.presets import presets_up_to
from heedful.errors import SettingError
from heedful.model.transformer import build_model
from heedful.storage.folder import ModelFolder
from heedful.training.backend import LossBackend
from heedful.training.step import Gradients, build_optimizer
from heedful.training.tasks.task import Task

MIN_PASSES = 8  # epochs; a rule of thumb: with fewer, a smaller model is better
RDROP_PASSES = 50  # epochs; with more, R-Drop helps a small model more than further epochs
RDROP = 5.0  # α
MEASURE_SECONDS = 0.5  # longer than most disturbances
CONFIRM_SECONDS = 3.0  # of measuring before a low speed is believed
MIN_MEASUREMENTS = 3

Passes = Callable[[RunConfig], float]


def resolve_settings(
    task: Task, user_config: RunConfig, init: ModelFolder | None, log: Callable[[str], None]
) -> RunConfig:
    """The settings of a run by its corpus; with a smaller preset if the user's settings do not fit that of the corpus.

    Pairs are counted when they are encoded, so a refusal would come late; `check_run` has seen that one preset fits.
    """
    try:
        return task.resolve(user_config, init)
    except SettingError as problem:
        chosen = user_config.preset or init is not None
        for name in () if chosen else reversed(presets_up_to(task.preset_for_corpus())[:-1]):
            with suppress(SettingError):
                config = task.resolve(user_config.model_copy(update={"preset": name}), init)
                log(f"preset {name}, as the settings do not fit a larger one: {problem}")
                return config
        raise


def fit_preset(
    config: RunConfig, user_config: RunConfig, task: Task, passes_with: Passes, log: Callable[[str], None]
) -> RunConfig:
    """`config`, or `user_config` with a smaller preset if the time budget is too short.

    With few epochs the model does not overfit, so BPE-dropout is switched off. `passes_with` measures how many passes
    over the corpus fit into the budget.
    """
    names = list(PRESETS)
    smaller = names[: names.index(config.preset)] if config.preset else []
    if not smaller or user_config.preset or user_config.train.time is None or not task.suits_its_size_to_time:
        return config
    for name in reversed(smaller):
        passes = passes_with(config)
        if passes >= MIN_PASSES:
            break
        try:
            candidate = task.resolve(user_config.model_copy(update={"preset": name}), None)
        except SettingError:  # the settings do not fit this preset
            break
        time = user_config.train.time
        log(f"preset {name}: {time} is enough for {passes:.1f} passes with {config.preset}, under {MIN_PASSES}")
        config = candidate
    if config.preset in smaller and "bpe_dropout" not in user_config.train.model_fields_set:
        config = config.replace(train={"bpe_dropout": 0.0})
    return config


def add_rdrop(config: RunConfig, user_config: RunConfig, passes_with: Passes, log: Callable[[str], None]) -> RunConfig:
    """`config`, with R-Drop if the time budget allows more epochs than a small model can use."""
    fixed = {"rdrop", "max_updates"} & user_config.train.model_fields_set
    model = config.model
    small = config.preset == "tiny" and model.family == "encoder-decoder" and model.architecture == "transformer"
    small = small and not model.features and not model.pointer
    if user_config.train.time is None or fixed or not small or model.act_halting or model.experts or not model.dropout:
        return config
    passes = passes_with(config)
    if passes < RDROP_PASSES:
        return config
    log(f"R-Drop: {user_config.train.time} is enough for {passes:.0f} passes, over {RDROP_PASSES}")
    return config.replace(train={"rdrop": RDROP})


def passes_in_time(task: Task, config: RunConfig, device: torch.device, world: int = 1) -> float:
    """Passes over the corpus that `world` processes like this one make within the time budget.

    A throwaway model of that size trains on one batch repeatedly. The fastest repetition counts, as others were
    disturbed by other programs; the first, which includes warm-up, does not. A low speed is measured for longer.
    """
    assert config.train.time is not None
    duration = parse_duration(config.train.time)
    if config.train.compile:  # compiling takes longer than the measurement
        config = config.replace(train={"compile": False, "backend": "torch"})
    task.prepare(config)
    batches = task.plan(0)
    median = sorted(batches, key=len)[len(batches) // 2]
    split = task.split_batch(median, 1, config.train.micro_batches * world)
    micro_batch = next(build for build in split.builders if build is not None)().to(device)
    model = build_model(config.model).to(device).train()
    Gradients(model)
    backend, optimizer = LossBackend(model, task, config, device), build_optimizer(model, config.train)

    def time_update() -> tuple[float, float]:
        """-> seconds for a micro-batch, and for an optimizer step."""
        began = _now(device)
        (backend.loss(micro_batch).smoothed / split.tokens).backward()  # type: ignore[no-untyped-call]
        computed = _now(device)
        optimizer.step(0.0)
        return computed - began, _now(device) - computed

    def passes() -> float:
        update = config.train.micro_batches * min(compute for compute, _ in times) + min(step for _, step in times)
        return duration / (len(batches) * update)

    time_update()
    began, times = perf_counter(), [time_update() for _ in range(MIN_MEASUREMENTS)]
    while perf_counter() - began < (MEASURE_SECONDS if passes() >= RDROP_PASSES else CONFIRM_SECONDS):
        times.append(time_update())
    return passes()


def _now(device: torch.device) -> float:
    """The time, after the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return perf_counter()
