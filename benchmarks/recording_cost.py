"""What the taps cost when nobody listens: training and translation against the same model without any tap.

    python benchmarks/recording_cost.py

Three models, with taps, without, and once more without, take turns at every update and at every step of a beam search,
so that whatever else the machine does meets all of them alike. Printed are medians over many turns of the time with
taps divided by the time without; the second pair, without and without, shows how exact that is. On a busy machine that
is not exact enough, so the checks that the taps need are timed by themselves too, and divided by the time of the work.
"""

from __future__ import annotations

import itertools
import statistics
import time
import timeit
from collections.abc import Callable
from types import MethodType

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.config import ModelConfig
from heedful.model import Attention, EncoderDecoder, FeedForward, Stack
from heedful.model.cache import LayerCache
from heedful.model.positions import Position
from heedful.ops import attend, dropout

SIZES = {"vocab_size": 4000, "d_model": 128, "d_ff": 512, "n_heads": 4, "encoder_layers": 2, "decoder_layers": 2}


# The same methods as they would be written if nothing could ever be recorded.


def over_itself(
    self: Attention, x: Tensor, keep: Tensor | None, position: Position, cache: LayerCache | None = None
) -> Tensor:
    start = cache.length if cache else 0
    query = position.turn(self._heads(self.query(x)), start)
    key = position.turn(self._heads(self.key(x)), start)
    value = self._heads(self.value(x))
    if cache:
        key, value = cache.append(key, value)
    return self.output(attend_and_merge(self, query, key, value, keep, position.bias(query, key.size(2))))


def attend_and_merge(self: Attention, query: Tensor, key: Tensor, value: Tensor, keep, bias) -> Tensor:
    heads = attend(query, key, value, keep, bias, self.rate if self.training else 0.0)
    return heads.transpose(1, 2).flatten(2)


def project(self: Attention, memory: Tensor) -> tuple[Tensor, Tensor]:
    return self._heads(self.key(memory)), self._heads(self.value(memory))


def over_memory(self: Attention, x: Tensor, memory: tuple[Tensor, Tensor], keep: Tensor | None) -> Tensor:
    key, value = memory
    beams = x.reshape(key.size(0), -1, x.size(-1))
    return self.output(attend_and_merge(self, self._heads(self.query(beams)), key, value, keep, None).view_as(x))


def feed(self: FeedForward, x: Tensor) -> Tensor:
    return self.down(dropout(self.activation(self.up(x)), self.rate, self.training))


def stack(self: Stack, x: Tensor, keep: Tensor | None, memory=None, memory_keep=None, cache=None) -> Tensor:
    x = self.position.embed(x, cache.length if cache else 0)
    x = dropout(x, self.rate, self.training)
    for index, block in enumerate(self.blocks):
        x = block(x, keep, self.position.layer(index), memory, memory_keep, cache.layers[index] if cache else None)
    return x if self.norm is None else self.norm(x)


def untapped(model: EncoderDecoder) -> EncoderDecoder:
    """The model with methods that know no taps."""
    bodies = {
        Attention: {"over_itself": over_itself, "project": project, "over_memory": over_memory},
        FeedForward: {"forward": feed},
        Stack: {"forward": stack},
        EncoderDecoder: {"project": lambda self, hidden: F.linear(hidden, self.output_weight, self.output_bias)},
    }
    for module in model.modules():
        for name, body in bodies.get(type(module), {}).items():
            setattr(module, name, MethodType(body, module))
    return model


def update(model: EncoderDecoder) -> Callable[[], None]:
    source, target = torch.randint(4, 4000, (16, 16)), torch.randint(4, 4000, (16, 17))
    model.train()

    def work() -> None:
        logits = model.project(model(source, target[:, :-1]))
        F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten()).backward()
        model.zero_grad()

    return work


def step(model: EncoderDecoder, sentences: int) -> Callable[[], None]:
    """One step of a beam of 4, in the middle of an output: the same one again and again."""
    model.eval()
    with torch.inference_mode():
        cache = model.start(torch.randint(4, 4000, (sentences, 16)))
        cache.select(torch.arange(sentences).repeat_interleave(4))
        model.step(torch.randint(4, 4000, (4 * sentences, 10)), cache)
    ids, length = torch.randint(4, 4000, (4 * sentences, 1)), cache.length

    @torch.inference_mode()
    def work() -> None:
        model.project(model.step(ids, cache)).log_softmax(-1)
        for layer in cache.layers:
            layer.length = length

    return work


def checks(model: EncoderDecoder, decoder: bool) -> float:
    """Seconds that one pass spends on asking whether anybody listens; of the decoder alone, or of all."""
    attentions = [m for n, m in model.named_modules() if isinstance(m, Attention) and (not decoder or "decoder" in n)]
    feeds = [m for n, m in model.named_modules() if isinstance(m, FeedForward) and (not decoder or "decoder" in n)]
    stacks = [model.decoder] if decoder else [model.encoder, model.decoder]

    def ask() -> None:
        for attention in attentions:
            if any(attention._listeners) or any(attention._listeners):
                raise AssertionError
        for feed in feeds:
            if feed._listeners:
                raise AssertionError
        for each in stacks:
            if each._listeners[0] or each._listeners[1]:
                raise AssertionError
        if model._listeners:
            raise AssertionError

    return min(timeit.repeat(ask, number=2000, repeat=15)) / 2000


def compare(works: list[Callable[[], None]], turns: int) -> tuple[float, float, float]:
    """The median over the turns of first / second and of third / second, and the least seconds of the first."""
    seconds: list[list[float]] = [[] for _ in works]
    orders = list(itertools.permutations(range(len(works))))
    for turn in range(turns + 10):
        for index in orders[turn % len(orders)]:
            began = time.thread_time_ns()
            works[index]()
            if turn >= 10:
                seconds[index].append(time.thread_time_ns() - began)
    ratios = [statistics.median(a / b for a, b in zip(seconds[i], seconds[1], strict=True)) for i in (0, 2)]
    return ratios[0], ratios[1], min(seconds[0]) / 1e9


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    models = [EncoderDecoder(ModelConfig(**SIZES)) for _ in range(3)]
    for model in models[1:]:
        model.load_state_dict(models[0].state_dict())
        untapped(model)
    source, target = torch.randint(4, 4000, (3, 9)), torch.randint(4, 4000, (3, 7))
    with torch.no_grad():
        assert torch.equal(models[0].eval()(source, target), models[1].eval()(source, target))
    for name, works, turns in (
        ("training, an update", [update(model) for model in models], 150),
        ("translating 8 sentences, a step", [step(model, 8) for model in models], 800),
        ("translating 1 sentence, a step", [step(model, 1) for model in models], 1500),
    ):
        training = name.startswith("training")
        for model in models:
            model.train(training)
        ratio, noise, least = compare(works, turns)
        share = checks(models[0], decoder=not training) / least
        print(
            f"{name:32} {100 * (ratio - 1):+.2f} % with taps ({100 * (noise - 1):+.2f} % without);"
            f" the checks alone {100 * share:.2f} %",
            flush=True,
        )


if __name__ == "__main__":
    main()
