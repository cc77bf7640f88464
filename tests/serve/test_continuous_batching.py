"""Requests in the engine's search: they join at any step, and are the same as alone."""

from __future__ import annotations

import shutil

import pytest

from heedful.errors import HeedfulError, SettingError
from heedful.inference import shortlist
from heedful.inference.translator import Translator
from heedful.native import library
from heedful.serve.messages import WorkerTask
from heedful.serve.translation_workload import TranslationWorkload, translations
from heedful.serve.workload import PACE
from heedful.storage.folder import load_folder
from tests.serve.test_translation_workload import LINES, Clock, finish, texts

pytestmark = pytest.mark.skipif(library() is None, reason="there is no compiled engine")


@pytest.fixture(scope="module", params=[1, 2])
def translator(folders, request) -> Translator:
    return Translator([load_folder(folders["en-de"])], threads=request.param)


@pytest.fixture
def work(translator) -> TranslationWorkload:
    return TranslationWorkload(translator, clock=Clock())


def test_requests_join_at_every_step_and_are_the_same_as_alone(work, translator):
    result = {}
    for number, line in enumerate(LINES, 1):
        work.add(WorkerTask(number, {"texts": [line]}))
        result |= {event.task: event.value for event in work.step()}
    result |= finish(work)
    assert [texts(result[number])[0] for number in range(1, 41)] == translator.translate(LINES)


def test_shortlists_are_those_of_the_translator(folders, tmp_path):
    opened = load_folder(shutil.copytree(folders["en-de"], tmp_path / "model"))
    pairs = shortlist.encode_pairs(zip(LINES, LINES, strict=True), opened)
    shortlist.save_shortlist(shortlist.build_shortlist(pairs[:5], opened.source_tokenizer, opened.tokenizer), opened)
    translator = Translator([opened], shortlist=True)
    work = TranslationWorkload(translator, clock=Clock())
    work.add(WorkerTask(1, {"texts": LINES}))
    result = texts(finish(work)[1])
    assert result == translator.translate(LINES) != Translator([opened]).translate(LINES)


def test_each_has_options_of_its_own(work, translator):
    work.add(WorkerTask(1, {"texts": LINES[:3], "search": {"beam": 1}}))
    work.add(WorkerTask(2, {"texts": LINES[3:6], "search": {"beam": 2, "n_best": 2}}))
    work.add(WorkerTask(3, {"texts": LINES[6:8], "prefix": "Der"}))
    result = {event.task: event.value for event in work.step()}
    assert work.counts.batches == [8]  # all of them at once
    result |= finish(work)
    assert texts(result[1]) == translator.translate(LINES[:3], beam=1)
    assert texts(result[3]) == translator.translate(LINES[6:8], prefix="Der")
    assert all(len(alternatives) == 2 for alternatives in translations(result[2][1]))


def test_young_requests_do_not_wait_for_all_of_a_long_one(work):
    work.scheduler.backend.max_rows = 12
    work.add(WorkerTask(1, {"texts": LINES}))
    work.scheduler.clock.now += PACE * 5
    work.add(WorkerTask(2, {"texts": LINES[:1]}))
    done = []
    while not work.idle():
        done += [event.task for event in work.step()]
        assert work.scheduler.backend.rows <= 12 + work.translator.search.beam
    assert done == [2, 1]


def test_a_cancelled_request_leaves_the_search(work):
    work.add(WorkerTask(1, {"texts": LINES[:30]}))
    work.add(WorkerTask(2, {"texts": LINES[30:31]}))
    result = {event.task for event in work.step()}
    work.cancel(1)
    assert not any(place.task == 1 for place in work.places.values())
    assert len(work.scheduler.running) <= 1
    assert result | set(finish(work)) == {2}
    assert not work.scheduler.backend.rows and not work.tasks


def test_empty_and_long_texts_and_what_cannot_be_searched(work, translator):
    translator.notice = lambda text: None
    long = " ".join(LINES)
    work.add(WorkerTask(1, {"texts": ["", long, " "]}))
    (value,) = finish(work).values()
    assert texts(value) == ["", translator.translate(long), ""]
    with pytest.raises(SettingError, match="n_best"):
        work.add(WorkerTask(2, {"texts": LINES[:1], "search": {"beam": 2, "n_best": 3}}))
    assert work.idle()


def test_an_error_in_a_later_step_fails_the_tasks_of_that_search(work, monkeypatch):
    def breaks_in_second_call(step):
        calls = []

        def broken(*arguments: int) -> list:
            calls.append(arguments)
            if len(calls) > 1:
                raise HeedfulError("the model's probabilities are not numbers")
            return step(*arguments)

        return broken

    for search in work.scheduler.backend.searches:
        monkeypatch.setattr(search.search, "step", breaks_in_second_call(search.search.step))
    work.add(WorkerTask(1, {"texts": LINES[:30]}))
    events = []
    while not work.idle():
        events += work.step()
    assert [(event.task, event.kind) for event in events] == [(1, "failed")]
