"""Which preset a given time is enough for."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from heedful.config import RunConfig, read
from heedful.data.batch import Batch
from heedful.loss import translation_loss
from heedful.model import build
from heedful.train import start
from heedful.train.pace import OFTEN, PASSES, SHARE, affordable, operations, products_per_second, thorough
from heedful.train.ranks import Ranks
from heedful.train.report import Report
from heedful.train.tasks import task_for

WORK = {"tiny": 1e12, "small": 10e12, "base": 100e12}


class Corpus:
    """A task that knows what each preset costs."""

    def work(self, config: RunConfig) -> float:
        return WORK[config.preset or "base"]

    def resolve(self, asked: RunConfig, init: None) -> RunConfig:
        return asked.with_preset(asked.preset or "base")


def chosen(rate: float, *words: str, preset: str | None = None) -> tuple[str | None, list[str]]:
    said: list[str] = []
    asked = read(None, words)
    if preset:
        asked = asked.model_copy(update={"preset": preset})
    task = Corpus()
    config = affordable(task.resolve(asked, None), asked, task, lambda: rate, said.append)  # type: ignore[arg-type]
    return config.preset, said


@pytest.mark.parametrize(
    ("share", "name"), [(1.01, "base"), (0.99, "small"), (0.11, "small"), (0.09, "tiny"), (1e-6, "tiny")]
)
def test_the_largest_preset_that_goes_over_the_corpus_often_enough(share, name):
    rate = share * PASSES * WORK["base"] / SHARE / 3600
    assert chosen(rate, "train.time=1h")[0] == name


def test_a_preset_that_does_not_go_with_what_was_asked_for_is_not_taken():
    class Small(Corpus):
        def resolve(self, asked: RunConfig, init: None) -> RunConfig:
            return asked.with_preset(asked.preset or "small")

    said: list[str] = []
    asked = read(None, ["train.time=1h", "model.n_heads=256"])  # 256 is a multiple of it, 128 of preset tiny is not
    task = Small()
    config = affordable(task.resolve(asked, None), asked, task, lambda: 1.0, said.append)  # type: ignore[arg-type]
    assert (config.preset, said) == ("small", [])


def test_the_reason_is_said():
    rate = 0.5 * PASSES * WORK["base"] / SHARE / 3600
    assert chosen(rate, "train.time=1h")[1] == ["preset small: 1h is enough for 4.0 passes with base, under 8"]


def test_what_was_asked_for_is_kept():
    assert chosen(1.0) == ("base", [])
    assert chosen(1.0, "train.time=1h", preset="base") == ("base", [])
    assert chosen(1.0, "train.time=1h", preset="small") == ("small", [])


def twice(passes: float, *words: str) -> tuple[float, list[str]]:
    said: list[str] = []
    asked, task = read(None, ["train.time=1h", *words]), Corpus()
    config = asked.with_preset("tiny")
    rate = passes * WORK["tiny"] / SHARE / 3600
    config = thorough(config, asked, task, lambda: rate, said.append)  # type: ignore[arg-type]
    return config.train.consistency, said


def test_pairs_are_read_twice_where_there_is_time_for_many_passes():
    assert twice(OFTEN * 0.99) == (0.0, [])
    assert twice(72.4) == (5.0, ["pairs are read twice (R-Drop): 1h is enough for 72 passes, over 50"])


@pytest.mark.parametrize(("suited", "consistency"), [("tiny", 5.0), ("small", 0.0)])
def test_a_corpus_that_has_the_smallest_preset_only_for_want_of_time_is_read_once(suited, consistency, monkeypatch):
    class Suited(Corpus):
        def resolve(self, asked: RunConfig, init: None) -> RunConfig:
            return asked.with_preset(asked.preset or suited)

    rate = 60 * WORK["tiny"] / SHARE / 3600  # six passes with preset small, which are too few
    monkeypatch.setattr(start, "products_per_second", lambda precision, device: rate)
    config = start.resolve(read(None, ["train.time=1h"]), Suited(), None, Ranks("cpu"), Report(None, None))  # type: ignore[arg-type]
    assert (config.preset, config.train.consistency) == ("tiny", consistency)


@pytest.mark.parametrize(
    "word",
    ["train.consistency=0", "train.max_updates=10", "model.dropout=0", "model.architecture=rnn", "model.halting=true"],
)
def test_pairs_are_read_once_where_twice_was_not_tried_or_not_wanted(word):
    more = ["model.recurrent_depth=true", "model.norm=pre"] if word == "model.halting=true" else []
    assert twice(10 * OFTEN, word, *more) == (0.0, [])


@pytest.mark.parametrize("words", [[], ["model.architecture=rnn"], ["model.recurrent_depth=true"]])
def test_operations_are_those_that_torch_counts(words):
    """Without attention's own products, which are few in short sentences."""
    small = ["model.d_model=64", "model.d_ff=128", "model.n_heads=2", "model.dropout=0"]
    config = read(None, [*small, *words]).with_preset("tiny").replace(
        model={"vocab_size": 300, "pad_id": 0, "bos_id": 1, "eos_id": 2}, train={"negatives": 0}
    )  # fmt: skip
    ids = torch.from_numpy(np.random.default_rng(1).integers(3, 300, (16, 9)))
    lengths = torch.full((16,), 8)
    batch = Batch(ids[:, :8], ids, lengths, lengths, 128)
    model = build(config.model)
    with FlopCounterMode(display=False) as counter:
        translation_loss(model, batch, 0.1).smoothed.backward()  # type: ignore[arg-type]
    if config.model.architecture == "rnn":  # torch does not count what goes on inside its recurrent layers
        assert operations(config, 128, 128) > 0.9 * counter.get_total_flops()
    else:
        assert operations(config, 128, 128) == pytest.approx(counter.get_total_flops(), rel=0.1)


def test_negatives_take_part_of_the_vocabulary():
    large = read(None, []).with_preset("tiny").replace(model={"vocab_size": 30_000})
    whole = large.replace(train={"negatives": 0})
    rows = 30_000 - large.train.negatives - large.train.batch_tokens // 3
    assert operations(whole, 5, 7) - operations(large, 5, 7) == 6 * 7 * rows * 128


def test_the_rate_of_products_is_measured():
    assert 1e8 < products_per_second("float32", torch.device("cpu")) < 1e14


@pytest.fixture(scope="module")
def opened(corpus, tmp_path_factory):
    """A task with the sentence pairs of the embedded corpus, and what was asked of it."""
    files = {"source": corpus / "train.en", "target": corpus / "train.de"}
    files |= {"valid_source": corpus / "valid.en", "valid_target": corpus / "valid.de"}
    asked = read(None, ["train.time=1m"], data=files)
    return asked, task_for(asked).open(asked, tmp_path_factory.mktemp("store"), lambda message: None, None)


@pytest.mark.parametrize(("rate", "name"), [(1e30, "small"), (1.0, "tiny")])
def test_a_corpus_of_pairs_is_weighed_by_its_tokens(opened, monkeypatch, rate, name):
    asked, task = opened
    monkeypatch.setattr("heedful.train.translation.preset_for", lambda pairs: "small")
    config = affordable(task.resolve(asked, None), asked, task, lambda: rate, lambda message: None)
    assert config.preset == name
    assert task.work(config) > 0


@pytest.mark.parametrize(
    ("rate", "words", "split"),
    [(1.0, [], 0.0), (1.0, ["train.split=0.2"], 0.2), (1.0, ["preset=tiny"], 0.1), (1e30, ["preset=tiny"], 0.1)],
)
def test_subwords_are_split_where_there_is_time_to_read_them_often(opened, monkeypatch, rate, words, split):
    asked, task = opened
    monkeypatch.setattr("heedful.train.translation.preset_for", lambda pairs: "small")
    asked = read(None, ["train.time=1m", *words], data=asked.data.model_dump(exclude_unset=True))
    config = affordable(task.resolve(asked, None), asked, task, lambda: rate, lambda message: None)
    assert config.train.split == split


@pytest.mark.parametrize(
    ("words", "decay"),
    [
        ([], 0.3),
        (["train.weight_decay=0"], 0.0),
        (["train.optimiser=adam"], 0.0),
        (["model.architecture=rnn"], 0.0),
    ],
)
def test_weights_decay_with_muon_unless_it_is_given(opened, words, decay):
    asked, task = opened
    asked = read(None, words, data=asked.data.model_dump(exclude_unset=True))
    assert task.resolve(asked, None).train.weight_decay == decay


def test_weights_decay_by_the_updates_of_a_pass_and_the_rate_that_are_taken(opened):
    asked, task = opened
    words = ["train.batch_tokens=16", "train.learning_rate=0.02"]
    asked = read(None, words, data=asked.data.model_dump(exclude_unset=True))
    labels = sum(len(task.store.train.target(i)) + 1 for i in range(len(task.store.train)))
    decay = task.resolve(asked, None).train.weight_decay
    assert decay * 0.02 * labels / 16 == pytest.approx(0.4, rel=0.1)
    assert decay < 0.3
