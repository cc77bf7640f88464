"""Which preset a given time is enough for."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from heedful.config import RunConfig, load_config
from heedful.data.corpus import CorpusCache
from heedful.errors import SettingError
from heedful.training import preset_selection, setup
from heedful.training.distributed import Distributed
from heedful.training.optim.muon import Muon
from heedful.training.preset_selection import MIN_PASSES, RDROP_PASSES, add_rdrop, fit_preset, resolve_settings
from heedful.training.run_report import RunReport
from heedful.training.tasks import task_for

COST = {"tiny": 1.0, "small": 10.0, "base": 100.0}  # of a pass over the corpus


class Corpus:
    """A task that takes any preset."""

    suits_its_size_to_time = True

    def resolve(self, requested: RunConfig, init: None) -> RunConfig:
        return requested.with_preset(requested.preset or "base")


def passes_of(tiny: float) -> Callable[[RunConfig], float]:
    """What a time is enough for where it is enough for so many passes with preset tiny."""
    return lambda config: tiny / COST[config.preset or "base"]


def chosen(tiny: float, *words: str, preset: str | None = None) -> tuple[str | None, list[str]]:
    log: list[str] = []
    requested = load_config(None, words)
    if preset:
        requested = requested.model_copy(update={"preset": preset})
    task = Corpus()
    config = fit_preset(task.resolve(requested, None), requested, task, passes_of(tiny), log.append)  # type: ignore[arg-type]
    return config.preset, log


@pytest.mark.parametrize(
    ("share", "name"), [(1.01, "base"), (0.99, "small"), (0.11, "small"), (0.09, "tiny"), (1e-6, "tiny")]
)
def test_the_largest_preset_that_goes_over_the_corpus_often_enough(share, name):
    assert chosen(share * MIN_PASSES * COST["base"], "train.time=1h")[0] == name


def test_a_preset_that_does_not_go_with_what_was_asked_for_is_not_taken():
    class Small(Corpus):
        def resolve(self, requested: RunConfig, init: None) -> RunConfig:
            return requested.with_preset(requested.preset or "small")

    log: list[str] = []
    requested = load_config(
        None, ["train.time=1h", "model.n_heads=256"]
    )  # 256 is a multiple of it, 128 of preset tiny is not
    task = Small()
    config = fit_preset(task.resolve(requested, None), requested, task, passes_of(1.0), log.append)  # type: ignore[arg-type]
    assert (config.preset, log) == ("small", [])


def test_the_reason_is_logged():
    log = chosen(0.5 * MIN_PASSES * COST["base"], "train.time=1h")[1]
    assert log == [f"preset small: 1h is enough for {MIN_PASSES / 2:.1f} passes with base, under {MIN_PASSES}"]


def test_settings_of_the_user_are_kept():
    assert chosen(1.0) == ("base", [])
    assert chosen(1.0, "train.time=1h", preset="base") == ("base", [])
    assert chosen(1.0, "train.time=1h", preset="small") == ("small", [])


def twice(passes: float, *words: str) -> tuple[float, list[str]]:
    log: list[str] = []
    requested = load_config(None, ["train.time=1h", *words])
    config = add_rdrop(requested.with_preset("tiny"), requested, passes_of(passes), log.append)
    return config.train.rdrop, log


def test_rdrop_is_added_where_there_is_time_for_many_passes():
    assert twice(RDROP_PASSES * 0.99) == (0.0, [])
    assert twice(72.4) == (5.0, ["R-Drop: 1h is enough for 72 passes, over 50"])


@pytest.mark.parametrize(("suited", "consistency"), [("tiny", 5.0), ("small", 0.0)])
def test_no_rdrop_where_want_of_time_chose_the_smallest_preset(suited, consistency, monkeypatch):
    class Suited(Corpus):
        def resolve(self, requested: RunConfig, init: None) -> RunConfig:
            return requested.with_preset(requested.preset or suited)

    passes = passes_of(60.0)  # six with preset small, which are too few
    monkeypatch.setattr(setup, "passes_in_time", lambda task, config, device, world: passes(config))
    config = setup.resolve(
        load_config(None, ["train.time=1h"]), Suited(), None, Distributed("cpu"), RunReport(None, None)
    )  # type: ignore[arg-type]
    assert (config.preset, config.train.rdrop) == ("tiny", consistency)


@pytest.mark.parametrize(
    "word",
    ["train.rdrop=0", "train.max_updates=10", "model.dropout=0", "model.architecture=rnn", "model.act_halting=true"],
)
def test_no_rdrop_where_it_is_untested_or_not_wanted(word):
    more = ["model.universal=true", "model.pre_norm=true"] if word == "model.act_halting=true" else []
    assert twice(10 * RDROP_PASSES, word, *more) == (0.0, [])


@pytest.fixture(scope="module")
def opened(corpus, tmp_path_factory):
    """A task with the sentence pairs of the embedded corpus, and what was asked of it."""
    files = {"source": corpus / "train.en", "target": corpus / "train.de"}
    files |= {"valid_source": corpus / "valid.en", "valid_target": corpus / "valid.de"}
    requested = load_config(None, ["train.time=1m"], data=files)
    return requested, task_for(requested).open(requested, None, CorpusCache(tmp_path_factory.mktemp("store")))


SMALL_ENOUGH = ["preset=tiny", "model.d_model=64", "model.d_ff=64", "model.encoder_layers=1", "model.decoder_layers=1"]


@pytest.mark.parametrize("engine", ["auto", "torch"])
@pytest.mark.parametrize("micro_batches", [1, 4])
def test_passes_in_a_time_are_those_that_updates_come_to(opened, monkeypatch, engine, micro_batches):
    """With a clock that a loss moves by 0.03 s and a step by 0.01 s, and that is disturbed half of the time."""
    requested, task = opened
    words = [*SMALL_ENOUGH, "train.time=2h", f"train.backend={engine}", f"train.micro_batches={micro_batches}"]
    config = task.resolve(load_config(None, words, data=requested.data.model_dump(exclude_unset=True)), None)
    clock, disturbed = [0.0], itertools.cycle([0.02, 0.02, 0.0, 0.0])

    def takes(span: float, function: Callable[..., Any]) -> Callable[..., Any]:
        def slow(*inputs: Any) -> Any:
            clock[0] += span + next(disturbed)
            return function(*inputs)

        return slow

    monkeypatch.setattr(preset_selection, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(preset_selection.LossBackend, "loss", takes(0.03, preset_selection.LossBackend.loss))
    monkeypatch.setattr(Muon, "step", takes(0.01, Muon.step))
    result = preset_selection.passes_in_time(task, config, torch.device("cpu"))
    assert result == pytest.approx(7200 / len(task.plan(0)) / (0.03 * micro_batches + 0.01))


@pytest.mark.parametrize(("bad_until", "bad"), [(60.0, 60.0), (2.0, 0.7)])
def test_a_slow_moment_is_not_taken_for_the_speed(opened, monkeypatch, bad_until, bad):
    """A first update that compiles for a minute, or two seconds in which another program is busy."""
    requested, task = opened
    words = [*SMALL_ENOUGH, "train.time=2s", "train.micro_batches=1"]  # not enough for 50 passes
    config = task.resolve(load_config(None, words, data=requested.data.model_dump(exclude_unset=True)), None)
    clock, loss = [0.0], preset_selection.LossBackend.loss

    def slow(*inputs: Any) -> Any:
        clock[0] += bad if clock[0] < bad_until else 0.04
        return loss(*inputs)

    monkeypatch.setattr(preset_selection, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(preset_selection.LossBackend, "loss", slow)
    result = preset_selection.passes_in_time(task, config, torch.device("cpu"))
    assert result == pytest.approx(2 / len(task.plan(0)) / 0.04) and result < RDROP_PASSES


def test_what_was_measured_for_one_preset_is_not_kept_for_the_next(opened):
    """Subwords are split for preset tiny, and not after it if the time is short."""
    requested, task = opened
    words = [*SMALL_ENOUGH, "train.batch_tokens=128"]
    config = task.resolve(load_config(None, words, data=requested.data.model_dump(exclude_unset=True)), None)
    task.prepare(config)
    split = len(task.plan(0))
    task.prepare(config.replace(train={"bpe_dropout": 0.0}))
    assert task.bpe_dropout is None and len(task.plan(0)) < split


@pytest.mark.parametrize(
    ("suits", "words", "split"),
    [("small", [], 0.0), ("small", ["train.bpe_dropout=0.2"], 0.2), ("small", ["preset=tiny"], 0.1), ("tiny", [], 0.1)],
)
def test_subwords_are_not_split_where_time_made_the_model_small(opened, monkeypatch, suits, words, split):
    requested, task = opened
    monkeypatch.setattr("heedful.training.tasks.translation.preset_for", lambda pairs: suits)
    requested = load_config(None, ["train.time=1m", *words], data=requested.data.model_dump(exclude_unset=True))
    config = fit_preset(task.resolve(requested, None), requested, task, passes_of(1.0), lambda message: None)
    assert config.train.bpe_dropout == split


def test_settings_that_fit_only_a_smaller_preset_select_it(opened, monkeypatch):
    """A width of 100 is divided by the 4 heads of small, not by the 8 of base, which this corpus would select."""
    requested, task = opened
    monkeypatch.setattr("heedful.training.tasks.translation.preset_for", lambda pairs: "base")
    data, lines = requested.data.model_dump(exclude_unset=True), list[str]()
    config = resolve_settings(task, load_config(None, ["model.d_model=100"], data=data), None, lines.append)
    assert (config.preset, config.model.d_model, config.model.n_heads) == ("small", 100, 4)
    (line,) = lines
    assert line.startswith("preset small, as the settings do not fit a larger one: ") and "n_heads (8)" in line
    for setting in ("preset=base", "model.n_heads=3"):  # chosen by the user; divides no width
        requested = load_config(None, ["model.d_model=100", setting], data=data)
        with pytest.raises(SettingError, match="must be divisible by n_heads"):
            resolve_settings(task, requested, None, lines.append)
    assert len(lines) == 1


@pytest.mark.parametrize(
    ("words", "decay"),
    [
        ([], 0.3),
        (["train.weight_decay=0"], 0.0),
        (["train.optimizer=adam"], 0.0),
        (["model.architecture=rnn"], 0.0),
    ],
)
def test_weights_decay_with_muon_unless_it_is_given(opened, words, decay):
    requested, task = opened
    requested = load_config(None, words, data=requested.data.model_dump(exclude_unset=True))
    assert task.resolve(requested, None).train.weight_decay == decay


def test_weights_decay_by_the_updates_of_a_pass_and_the_rate_that_are_taken(opened):
    requested, task = opened
    words = ["train.batch_tokens=16", "train.learning_rate=0.02"]
    requested = load_config(None, words, data=requested.data.model_dump(exclude_unset=True))
    labels = sum(len(task.corpus.train.targets[i]) + 1 for i in range(len(task.corpus.train)))
    decay = task.resolve(requested, None).train.weight_decay
    assert decay * 0.02 * labels / 16 == pytest.approx(0.4, rel=0.1)
    assert decay < 0.3
