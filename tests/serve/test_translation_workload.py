"""Searches that are shared: who begins when, with whom, and who costs nothing any more."""

from __future__ import annotations

import pytest

from heedful import demo
from heedful.errors import SettingError
from heedful.inference.generator import Generator
from heedful.inference.torch_search import LANES, PATIENCE, REFILL_RATIO, TorchSearchLanes
from heedful.inference.translator import Translator
from heedful.serve.generation_workload import GenerationWorkload
from heedful.serve.messages import WorkerTask
from heedful.serve.translation_workload import TranslationWorkload, translations
from heedful.storage.folder import load_folder

LINES = [pair.source for pair in demo.generate(120, seed=21) if len(pair.source.split()) < 8][:40]


class Clock:
    """A second hand that is moved by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def translator(folders) -> Translator:
    return Translator([load_folder(folders["en-de"])])


@pytest.fixture
def work(translator) -> TranslationWorkload:
    clock = Clock()
    lanes = TorchSearchLanes(translator.torch, translator.next_token, clock)
    return TranslationWorkload(translator, lanes, clock)


def finish(work, most: int = 2000) -> dict[int, object]:
    """Step until there is nothing to do; what became of each task."""
    result = {}
    for _ in range(most):
        if work.idle():
            return result
        for event in work.step():
            assert event.kind in ("done", "delta"), event.value
            result[event.task] = event.value
    raise AssertionError("it does not come to an end")


def texts(value) -> list[str]:
    return [alternatives[0]["text"] if alternatives else "" for alternatives in translations(value[1])]


def test_a_lone_request_begins_at_once_and_is_what_the_translator_says(work, translator):
    work.add(WorkerTask(1, {"texts": LINES[:1]}))
    work.step()
    assert work.counts.batches == [1]
    assert texts(finish(work)[1]) == translator.translate(LINES[:1])


def test_requests_share_a_search_and_are_the_same_as_alone(work, translator):
    for number, line in enumerate(LINES, 1):
        work.add(WorkerTask(number, {"texts": [line]}))
    result = finish(work)
    assert [texts(result[number])[0] for number in range(1, 41)] == translator.translate(LINES)
    assert work.counts.batches == [40]


def test_a_text_without_tokens_is_not_searched(work, translator):
    work.add(WorkerTask(1, {"texts": ["{name}", LINES[0]]}))
    _, sentences = finish(work)[1]
    assert sentences[0] == [[]]
    assert sentences[1][0][0].text == translator.translate(LINES[0])
    assert work.counts.batches == [1]


def test_what_comes_later_begins_before_all_is_done(work):
    by_length = sorted(LINES, key=lambda line: len(work.translator.source_tokenizer.encode(line)))
    work.add(WorkerTask(1, {"texts": [by_length[0]] * 9 + [by_length[-1]]}))
    work.step()
    work.add(WorkerTask(2, {"texts": LINES[:4]}))
    while len(work.scheduler.backend.lanes) == 1:
        first = work.scheduler.backend.lanes[0]
        work.step()
    assert 0 < len(first.running) <= 4 / REFILL_RATIO  # the batch is refilled when it has become small
    assert set(finish(work)) == {1, 2}


def test_no_request_waits_longer_than_patience_for_a_turn(work):
    work.add(WorkerTask(1, {"texts": LINES[:30]}))
    work.step()
    work.add(WorkerTask(2, {"texts": LINES[30:31]}))
    work.step()
    assert len(work.scheduler.backend.lanes) == 1
    work.scheduler.clock.now += PATIENCE
    work.step()
    assert len(work.scheduler.backend.lanes) == 2


def test_lanes_are_few_and_the_one_with_least_time_is_next(work):
    for number in range(1, LANES + 3):
        work.add(WorkerTask(number, {"texts": [LINES[number]]}))
        work.scheduler.clock.now += PATIENCE
    for number in range(LANES + 2):
        assert len(work.scheduler.backend.lanes) <= LANES
        work.scheduler.clock.now += PATIENCE
        work.add(WorkerTask(100 + number, {"texts": LINES[:2]}))
        work.step()
    slow, *others = work.scheduler.backend.lanes
    slow.seconds += 5
    before = len(slow.running)
    while work.scheduler.backend.lanes == [slow, *others]:
        work.step()
    assert slow in work.scheduler.backend.lanes
    assert len(slow.running) == before
    finish(work)


def test_options_that_differ_do_not_share_a_search(work, translator):
    work.add(WorkerTask(1, {"texts": LINES[:3], "search": {"beam": 1}}))
    work.add(WorkerTask(2, {"texts": LINES[3:6], "search": {"beam": 2, "n_best": 2}}))
    work.add(WorkerTask(3, {"texts": LINES[6:8], "prefix": "Der"}))
    result = finish(work)
    assert texts(result[1]) == translator.translate(LINES[:3], beam=1)
    assert texts(result[3]) == translator.translate(LINES[6:8], prefix="Der")
    assert all(len(alternatives) == 2 for alternatives in translations(result[2][1]))
    assert sorted(work.counts.batches) == [2, 3, 3]


def test_young_requests_do_not_wait_for_all_of_a_long_one(work, monkeypatch):
    monkeypatch.setattr("heedful.inference.torch_search.ROWS", 12)  # four sentences at a time
    work.add(WorkerTask(1, {"texts": LINES}))
    work.scheduler.clock.now += 0.05
    work.add(WorkerTask(2, {"texts": LINES[:1]}))
    done = []
    while not work.idle():
        done += [event.task for event in work.step()]
    assert done == [2, 1]


def test_a_cancelled_request_costs_nothing_any_more(work):
    work.add(WorkerTask(1, {"texts": LINES[:8]}))
    work.step()
    work.add(WorkerTask(2, {"texts": LINES[8:16]}))
    work.cancel(1)
    work.cancel(2)
    steps = 0
    while not work.idle():
        assert work.step() == []
        steps += 1
    assert steps <= 3
    assert not work.tasks and not work.places and not work.waiting


def test_an_empty_text_and_a_long_one(work, translator):
    translator.notice = lambda text: None
    long = " ".join(LINES)
    work.add(WorkerTask(1, {"texts": ["", long, " "]}))
    (value,) = finish(work).values()
    assert texts(value) == ["", translator.translate(long), ""]


@pytest.mark.parametrize(
    "requested, says",
    [
        ({"search": {"beam": 2, "n_best": 3}}, "n_best"),
        ({"search": {"max_length": 2}, "prefix": "Der Hund schläft heute"}, "leaves no room"),
        ({"search": {"beam": 0}}, "beam"),
    ],
)
def test_what_cannot_be_searched_is_refused_before_others_are_in_it(work, requested, says):
    with pytest.raises(SettingError, match=says):
        work.add(WorkerTask(1, {"texts": LINES[:1], **requested}))
    assert work.idle()


def test_a_search_that_breaks_takes_only_its_own_with_it(work, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("the text of a user")
        yield

    monkeypatch.setattr(work.scheduler.backend.backend, "search_steps", broken)
    work.add(WorkerTask(1, {"texts": LINES[:1]}))
    (event,) = work.step()
    assert event.kind == "failed" and event.task == 1
    assert "RuntimeError" in event.value and "the text of a user" not in event.value
    assert work.idle()
    monkeypatch.undo()
    work.add(WorkerTask(2, {"texts": LINES[:1]}))
    assert 2 in finish(work)


@pytest.fixture(scope="module")
def generator(folders) -> Generator:
    return Generator(load_folder(folders["gpt"]))


def written(work: GenerationWorkload) -> dict[int, list[str]]:
    """Step until there is nothing to do; the samples of each task."""
    texts: dict[int, list[str]] = {}
    while not work.idle():
        for event in work.step():
            assert event.kind in ("delta", "done"), event.value
            for piece in event.value if event.kind == "delta" else ():
                samples = texts.setdefault(event.task, [""] * 4)
                samples[piece["number"]] += piece["text"]
    return texts


def test_texts_of_all_requests_are_written_together_and_are_what_they_would_be_alone(generator):
    work, requested = GenerationWorkload(generator), {"max_tokens": 9, "temperature": 1.0, "stop": []}
    prompts = {1: ("The dog", 5, 1.0), 2: ("A man", 6, 0.5), 3: ("The", 5, 1.0), 4: ("", 7, 0.0)}
    for number, (prompt, seed, temperature) in prompts.items():
        how = requested | {"seed": seed, "temperature": temperature}
        work.add(WorkerTask(number, {"prompt": prompt, "n": number, **how}))
        if number == 2:
            first = [event.task for event in work.step()]
            assert first == [1, 2]
    assert {event.task for event in work.step()} == {1, 2, 3, 4}
    assert work.counts.batches == [1, 2, 3, 4]
    work = GenerationWorkload(generator)
    for number, (prompt, seed, temperature) in prompts.items():
        work.add(
            WorkerTask(number, {"prompt": prompt, "n": number, **requested, "seed": seed, "temperature": temperature})
        )
    for number, samples in written(work).items():
        prompt, seed, temperature = prompts[number]
        alone = generator.samples(prompt, number, **requested | {"seed": seed, "temperature": temperature})
        assert samples[:number] == alone


def test_texts_beyond_the_batch_wait_and_cancelled_ones_leave(generator, monkeypatch):
    monkeypatch.setattr("heedful.inference.generator.MAX_ROWS", 4)
    work, requested = GenerationWorkload(generator), {"max_tokens": 30, "seed": 1}
    for number in (1, 2, 3, 4):
        work.add(WorkerTask(number, {"prompt": "The", "n": 2, **requested}))
    assert {event.task for event in work.step()} == {1, 2}
    work.cancel(1)
    work.cancel(4)
    assert {event.task for event in work.step()} == {2, 3}
    assert set(written(work)) <= {2, 3}
    work.add(WorkerTask(5, {"prompt": "x", "n": 9, **requested}))  # more than there is room for, alone
    assert {event.task for event in work.step()} == {5}
    work.cancel(5)
    assert work.idle() and not work.scheduler.backend.window.rows


def test_a_step_that_breaks_takes_only_those_that_were_in_it(generator, monkeypatch):
    monkeypatch.setattr("heedful.inference.generator.MAX_ROWS", 1)
    work = GenerationWorkload(generator)
    for number in (1, 2):
        work.add(WorkerTask(number, {"prompt": "The", "n": 1, "max_tokens": 3, "seed": 1}))
    with monkeypatch.context() as broken:
        broken.setattr("heedful.inference.generator.Generator.next", lambda self, window: 1 / 0)
        (event,) = work.step()
    assert (event.task, event.kind) == (1, "failed") and "ZeroDivisionError" in event.value
    assert set(written(work)) == {2}


def test_what_cannot_be_written_is_refused_before_others_are_with_it(generator):
    work = GenerationWorkload(generator)
    for requested, says in (
        ({"best": 10_000}, "logprobs is 10000, but the vocabulary has"),
        ({"top_p": 2.0}, "top_p"),
        ({"stop": [""]}, "stop"),
    ):
        with pytest.raises(SettingError, match=says):
            work.add(WorkerTask(1, {"prompt": "x", "n": 1, **requested}))
    assert work.idle()
