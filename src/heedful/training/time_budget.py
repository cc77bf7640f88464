"""What a given time is enough for: the largest preset that reads its corpus often enough, or reading pairs twice."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import torch

from heedful.config import PRESETS, RunConfig, parse_duration
from heedful.errors import SettingError
from heedful.model.transformer import build_model
from heedful.training.backend import LossBackend
from heedful.training.step import Gradients, build_optimizer
from heedful.training.tasks.task import Task

PASSES = 8  # a rule of thumb: with fewer of them a large model has seen too little to be worth its time
OFTEN = 50  # passes; of more than these a small model learns less than of reading every pair twice
CONSISTENCY = 5.0
MEASURING = 0.5  # seconds: longer than most of what disturbs it
DOUBTING = 3.0  # seconds in which no more passes must be found until a smaller model, or reading pairs once, is taken
FEWEST = 3  # measurements

Passes = Callable[[RunConfig], float]


def affordable(
    config: RunConfig, asked: RunConfig, task: Task, passes_with: Passes, say: Callable[[str], None]
) -> RunConfig:
    """`config`, or what a smaller preset makes of what was `asked`, if the time is too short for it.

    Where time is short a corpus is read so few times that nothing is learned by heart, and splitting its subwords would
    hold back. `passes_with` tells how often the time is enough to read the corpus.
    """
    names = list(PRESETS)
    smaller = names[: names.index(config.preset)] if config.preset else []
    if not smaller or asked.preset or asked.train.time is None or not task.suits_its_size_to_time:
        return config
    for name in reversed(smaller):
        passes = passes_with(config)
        if passes >= PASSES:
            break
        try:
            smaller_one = task.resolve(asked.model_copy(update={"preset": name}), None)
        except SettingError:  # what was asked for does not go with it
            break
        say(f"preset {name}: {asked.train.time} is enough for {passes:.1f} passes with {config.preset}, under {PASSES}")
        config = smaller_one
    if config.preset in smaller and "bpe_dropout" not in asked.train.model_fields_set:
        config = config.replace(train={"bpe_dropout": 0.0})
    return config


def thorough(config: RunConfig, asked: RunConfig, passes_with: Passes, say: Callable[[str], None]) -> RunConfig:
    """`config`, with every pair read twice in an update if there is time for more passes than a small model can use."""
    fixed = {"rdrop", "max_updates"} & asked.train.model_fields_set
    model = config.model
    small = config.preset == "tiny" and model.family == "encoder-decoder" and model.architecture == "transformer"
    if asked.train.time is None or fixed or not small or model.act_halting or not model.dropout:
        return config
    passes = passes_with(config)
    if passes < OFTEN:
        return config
    say(f"pairs are read twice (R-Drop): {asked.train.time} is enough for {passes:.0f} passes, over {OFTEN}")
    return config.replace(train={"rdrop": CONSISTENCY})


def passes_in_time(task: Task, config: RunConfig, device: torch.device, world: int = 1) -> float:
    """How often `world` processes like this one read the corpus in the time given.

    A model of that size learns from a batch again and again, for a moment, and is then forgotten. What takes the least
    time counts: the rest is what disturbed it. The first time, when kernels are made and memory is found, does not
    count, and few passes are believed only after seconds: another program may have been busy for as long.
    """
    assert config.train.time is not None
    given = parse_duration(config.train.time)
    if config.train.compile:  # which takes longer than it is worth here
        config = config.replace(train={"compile": False, "backend": "torch"})
    task.prepare(config)
    batches = task.plan(0)
    middling = sorted(batches, key=len)[len(batches) // 2]
    cut = task.cut(middling, 1, config.train.micro_batches * world)
    piece = next(piece for piece in cut.pieces if piece is not None)().to(device)
    model = build_model(config.model).to(device).train()
    Gradients(model)
    learning, optimiser = LossBackend(model, task, config, device), build_optimizer(model, config.train)

    def learn() -> tuple[float, float]:
        """-> seconds for a piece, and for a step."""
        began = _now(device)
        (learning.loss(piece).smoothed / cut.tokens).backward()  # type: ignore[no-untyped-call]
        learned = _now(device)
        optimiser.step(0.0)
        return learned - began, _now(device) - learned

    def passes() -> float:
        update = config.train.micro_batches * min(piece for piece, _ in times) + min(step for _, step in times)
        return given / (len(batches) * update)

    learn()
    began, times = perf_counter(), [learn() for _ in range(FEWEST)]
    while perf_counter() - began < (MEASURING if passes() >= OFTEN else DOUBTING):
        times.append(learn())
    return passes()


def _now(device: torch.device) -> float:
    """When the device has done what it was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return perf_counter()
