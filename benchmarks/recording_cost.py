"""What the taps cost when nobody listens: training and translation against the same model without any tap.

    python benchmarks/recording_cost.py

Three models of the same weights, one with taps and two without, take turns at every update and at every step of a beam
search, so that whatever else the machine does meets all of them alike. Printed is the median over many turns of the
processor time with taps divided by that without, as the median of several rounds with the least and the most of them;
and the same for the two without, which shows how exact that is. The checks that the taps need are timed by themselves
too, and divided by the time of the work: that is exact on a busy machine as well.
"""

from __future__ import annotations

import copy
import itertools
import statistics
import time
import timeit
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.config import ModelConfig
from heedful.model.attention.multi_head import MultiHeadAttention
from heedful.model.block import FeedForward, Stack
from heedful.model.context import LayerContext
from heedful.model.transformer import EncoderDecoder
from heedful.ops.dropout import dropout
from heedful.ops.scaled_dot_product import attend

SIZES = {"vocab_size": 4000, "d_model": 128, "d_ff": 512, "n_heads": 4, "encoder_layers": 2, "decoder_layers": 2}
ROUNDS = 7


# The same classes as they would be written if nothing could ever be recorded.


class PlainAttention(MultiHeadAttention):
    def self_attention(self, x: Tensor, context: LayerContext) -> Tensor:
        position, start = context.position, context.start
        query = position.rotate(self.split_heads(self.query(x)), start)
        key = position.rotate(self.split_heads(self.key(x)), start)
        value = self.split_heads(self.value(x))
        return self.output(self.attend_heads(query, key, value, context))

    def project(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        return self.split_heads(self.key(memory)), self.split_heads(self.value(memory))

    def cross_attention(self, x: Tensor, context: LayerContext) -> Tensor:
        memory = context.cache.memory if context.cache else None
        key, value = self.project(context.memory) if memory is None else memory
        beams = x.reshape(key.size(0), -1, x.size(-1))
        query = self.split_heads(self.query(beams))
        return self.output(self._attend(query, key, value, context.memory_keep, None, len(x)).view_as(x))

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, keep, bias, rows: int) -> Tensor:
        heads = attend(query, key, value, keep, bias, self.rate if self.training else 0.0)
        return heads.transpose(1, 2).flatten(2)


class PlainFeedForward(FeedForward):
    def forward(self, x: Tensor) -> Tensor:
        inner = self.activation(self.up(x)) if self.gate is None else self.activation(self.gate(x)) * self.up(x)
        return self.down(dropout(inner, self.rate, self.training))


class PlainStack(Stack):
    def add_positions(self, x: Tensor, start: int) -> Tensor:
        x = self.position.embed(x, start)
        if self.first_norm is not None:
            x = self.first_norm(x)
        return dropout(x, self.rate, self.training)


class PlainEncoderDecoder(EncoderDecoder):
    def project(self, hidden: Tensor) -> Tensor:
        return F.linear(self.before_output(hidden), self.output_weight, self.output_bias)


PLAIN = {item.__base__: item for item in (PlainAttention, PlainFeedForward, PlainStack, PlainEncoderDecoder)}


def untapped(model: EncoderDecoder) -> EncoderDecoder:
    """The same weights in classes that know no taps."""
    twin = copy.deepcopy(model, {id(item): item for item in (*model.parameters(), *model.buffers())})
    for module in twin.modules():
        module.__class__ = PLAIN.get(type(module), type(module))
    return twin


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
    """Seconds that one pass spends on asking whether taps have hooks; of the decoder alone, or of all."""
    attentions = [
        m for n, m in model.named_modules() if isinstance(m, MultiHeadAttention) and (not decoder or "decoder" in n)
    ]
    feeds = [m for n, m in model.named_modules() if isinstance(m, FeedForward) and (not decoder or "decoder" in n)]
    stacks = [model.decoder] if decoder else [model.encoder, model.decoder]

    def ask() -> None:
        for attention in attentions:
            if attention.tapped or attention.tapped:
                raise AssertionError
        for feed in feeds:
            if feed._inner_hooks:
                raise AssertionError
        for stack in stacks:
            if stack._embedded_hooks or stack._placed_hooks:
                raise AssertionError
        if model._logits_hooks:
            raise AssertionError

    return min(timeit.repeat(ask, number=2000, repeat=15)) / 2000


def compare(works: list[Callable[[], None]], turns: int) -> tuple[float, float, float]:
    """The median over the turns of first / second and third / second, and the least seconds of any."""
    seconds: list[list[int]] = [[] for _ in works]
    orders = list(itertools.permutations(range(len(works))))
    for turn in range(turns):
        for index in orders[turn % len(orders)]:
            began = time.thread_time_ns()
            works[index]()
            seconds[index].append(time.thread_time_ns() - began)
    first, second, third = seconds
    taps = statistics.median(a / b for a, b in zip(first, second, strict=True))
    return taps, statistics.median(a / b for a, b in zip(third, second, strict=True)), min(map(min, seconds)) / 1e9


def spread(ratios: list[float]) -> str:
    return "{:+.2f} % ({:+.2f} to {:+.2f})".format(
        *(100 * (item - 1) for item in (statistics.median(ratios), min(ratios), max(ratios)))
    )


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = EncoderDecoder(ModelConfig(**SIZES))
    models = [model, untapped(model), untapped(model)]
    source, target = torch.randint(4, 4000, (3, 9)), torch.randint(4, 4000, (3, 7))
    with torch.no_grad():
        assert torch.equal(model.eval()(source, target), models[1].eval()(source, target))
    for name, build, turns in (
        ("training, an update", update, 72),
        ("translating 8 sentences, a step", lambda model: step(model, 8), 360),
        ("translating 1 sentence, a step", lambda model: step(model, 1), 900),
    ):
        works = [build(item) for item in models]
        compare(works, 12)  # to warm up
        taps, noise, least = zip(*(compare(works, turns) for _ in range(ROUNDS)), strict=True)
        share = checks(model, decoder=build is not update) / min(least)
        print(
            f"{name:32} with taps {spread(taps)}, without {spread(noise)}; checks alone {100 * share:.2f} %", flush=True
        )


if __name__ == "__main__":
    main()
