"""What a given time is enough for: the largest preset that reads its corpus often enough, or reading pairs twice."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import torch

from heedful.config import PRESETS, RunConfig, seconds
from heedful.errors import SettingError
from heedful.model import EncoderDecoder, build
from heedful.ops.precision import computing_in
from heedful.train.task import Task

PASSES = 8  # a rule of thumb: with fewer of them a large model has seen too little to be worth its time
SHARE = 0.55  # of the rate of large products that training reaches on a CPU, with preset tiny
OFTEN = 50  # passes; of more than these a small model learns less than of reading every pair twice
CONSISTENCY = 5.0
MEASURING = 0.5  # seconds: longer than most of what disturbs it


def affordable(
    config: RunConfig, asked: RunConfig, task: Task, rate: Callable[[], float], say: Callable[[str], None]
) -> RunConfig:
    """`config`, or what a smaller preset makes of what was `asked`, if the time is too short for it.

    Where time is short a corpus is read so few times that nothing is learned by heart, and splitting its subwords would
    hold back. `rate` measures how many operations of products this machine does in a second.
    """
    names = list(PRESETS)
    smaller = names[: names.index(config.preset)] if config.preset else []
    if not smaller or asked.preset or asked.train.time is None or not task.work(config):
        return config
    possible = seconds(asked.train.time) * rate() * SHARE
    for name in reversed(smaller):
        passes = possible / task.work(config)
        if passes >= PASSES:
            break
        try:
            smaller_one = task.resolve(asked.model_copy(update={"preset": name}), None)
        except SettingError:  # what was asked for does not go with it
            break
        say(f"preset {name}: {asked.train.time} is enough for {passes:.1f} passes with {config.preset}, under {PASSES}")
        config = smaller_one
    if config.preset in smaller and "split" not in asked.train.model_fields_set:
        config = config.replace(train={"split": 0.0})
    return config


def thorough(
    config: RunConfig, asked: RunConfig, task: Task, rate: Callable[[], float], say: Callable[[str], None]
) -> RunConfig:
    """`config`, with every pair read twice in an update if there is time for more passes than a small model can use."""
    fixed = {"consistency", "max_updates"} & asked.train.model_fields_set
    small = config.preset == "tiny" and config.model.architecture == "transformer" and not config.model.halting
    if asked.train.time is None or fixed or not small or not config.model.dropout or not task.work(config):
        return config
    passes = seconds(asked.train.time) * rate() * SHARE / task.work(config)
    if passes < OFTEN:
        return config
    say(f"pairs are read twice (R-Drop): {asked.train.time} is enough for {passes:.0f} passes, over {OFTEN}")
    return config.replace(train={"consistency": CONSISTENCY})


def products_per_second(precision: str, device: torch.device) -> float:
    """Operations a second in products of the sizes that training has, as measured now."""
    a, b = torch.randn(4096, 256, device=device), torch.randn(256, 1024, device=device)
    with computing_in(precision, device):
        float((a @ b)[0, 0])  # libraries are loaded with the first
        best, end = float("inf"), perf_counter() + MEASURING
        while (began := perf_counter()) < end:
            float((a @ b)[0, 0])  # waits for the product
            best = min(best, perf_counter() - began)
    return 2 * a.numel() * b.size(1) / best


def operations(config: RunConfig, sources: int, targets: int) -> float:
    """Of the products with weights, forward and backward, for so many tokens of source and target."""
    model, train = config.model, config.train
    with torch.device("meta"):
        built = build(model)
    assert isinstance(built, EncoderDecoder)
    encoder, decoder = (sum(each.numel() for each in part.parameters()) for part in (built.encoder, built.decoder))
    if model.recurrent_depth:
        encoder, decoder = model.encoder_layers * encoder, model.decoder_layers * decoder
    drawn = train.negatives + train.batch_tokens // 3  # about a third of the tokens of a batch are different ones
    rows = min(model.vocab_size, drawn) if train.negatives else model.vocab_size
    return 6.0 * (encoder * sources + (decoder + rows * model.d_model) * targets)
