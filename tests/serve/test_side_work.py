"""Side work: requests take turns, large ones are refused or counted, and torch has one thread for it."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
import torch

from heedful.errors import SettingError
from heedful.serve.messages import Event, WorkerTask
from heedful.serve.model_process import UnavailableError
from heedful.serve.side_work import SideWork, Steps
from heedful.serve.worker import Worker
from heedful.storage.folder import load_folder
from tests.serve.conftest import TEXT


class Recorded:
    """Side work that notes who computes when; nothing begins before `go` is set."""

    def __init__(self) -> None:
        self.go, self.over = threading.Event(), threading.Event()
        self.order: list[str] = []
        self.events: list[Event] = []
        self.wanted = {1, 2, 3}
        self.work = SideWork(lambda task: task in self.wanted, self.events.append)

    def steps(self, name: str, count: int, last: bool = False) -> Steps:
        self.go.wait(20)
        for _ in range(count):
            self.order.append(name)
            yield
        if last:
            self.over.set()
        return name

    def run(self) -> None:
        self.go.set()
        assert self.over.wait(20)
        self.work.close()
        self.work.thread.join(20)


def test_requests_take_turns():
    recorded = Recorded()
    recorded.work.add(1, recorded.steps("a", 5, last=True))
    recorded.work.add(2, recorded.steps("b", 2))
    recorded.work.add(3, recorded.steps("c", 1))
    recorded.run()
    assert "".join(recorded.order) == "abcabaaa"
    assert [event.value for event in recorded.events] == ["c", "b", "a"]


def test_cancelled_side_work_costs_nothing():
    recorded = Recorded()
    recorded.wanted = {2}
    recorded.work.add(1, recorded.steps("a", 5))
    recorded.work.add(2, recorded.steps("b", 1, last=True))
    recorded.run()
    assert recorded.order == ["b"]


def test_errors_end_their_own_request_alone():
    def wrong(error: Exception) -> Steps:
        yield
        raise error

    recorded = Recorded()
    recorded.work.add(1, wrong(SettingError("no such thing.")))
    recorded.work.add(2, wrong(ZeroDivisionError()))
    recorded.work.add(3, recorded.steps("c", 3, last=True))
    recorded.run()
    kinds = {event.task: event.kind for event in recorded.events}
    assert kinds == {1: "error", 2: "failed", 3: "done"}


def test_attention_is_a_step_for_each_translation_and_torch_has_one_thread(folders):
    worker = Worker(SimpleNamespace(), load_folder(folders["en-de"]), "bfloat16")  # not computed by the engine
    request = {"texts": [TEXT, "He sleeps."], "fields": ("text",), "search": {"n_best": 3}, "attention": True}
    worker.workload.add(task := WorkerTask(1, request))
    while not (events := worker.workload.step()):
        pass
    steps, threads = worker._complete(task, *events[0].value), []

    def count() -> int:
        torch.set_num_threads(3)  # of this Python thread
        number = sum(1 for _ in steps)
        threads.append(torch.get_num_threads())
        return number

    counted: list[int] = []
    before = torch.get_num_threads()
    thread = threading.Thread(target=lambda: counted.append(count()))
    thread.start()
    thread.join(60)
    torch.set_num_threads(before)
    assert counted == [2 * 3 + 2 * 3]  # alignments, then attention
    assert threads == [1]


@pytest.mark.parametrize("options", [{"alignments": True}, {"attention": True}])
def test_alignments_of_many_translations_of_a_long_text_are_refused(client, options):
    body = {"text": "The dog sleeps. " * 1000, "n_best": 3}
    refused = client.post("/v1/translations", json=body | options)
    assert refused.status_code == 413
    assert "3 translations of 16,000 characters" in refused.json()["error"]["message"]
    assert "6,666 characters at most" in refused.json()["error"]["message"]
    assert client.post("/v1/translations", json={"text": TEXT, "n_best": 3} | options).status_code == 200


def test_side_work_counts_in_the_queue(running, client, monkeypatch):
    costs: list[int] = []
    model = running.state.models.by_name["en-de"]
    admit = model._admit
    monkeypatch.setattr(model, "_admit", lambda cost: costs.append(cost) or admit(cost))
    for options in ({}, {"alignments": True}, {"attention": True, "alignments": True}):
        assert client.post("/v1/translations", json={"text": TEXT, "n_best": 3} | options).status_code == 200
    assert client.post("/inside", json={"text": "He sleeps."}).status_code == 200
    assert costs == [2, 8, 14, 8]


def test_side_work_of_one_request_does_not_fill_the_queue(running, client, monkeypatch):
    costs: list[int] = []
    model = running.state.models.by_name["en-de"]

    def refuse(cost: int) -> None:
        costs.append(cost)
        raise UnavailableError("queue", "full")

    monkeypatch.setattr(model, "_admit", refuse)
    body = {"text": "He sleeps. " * 20, "n_best": 16, "attention": True}
    assert client.post("/v1/translations", json=body).status_code == 503
    assert costs == [20 * 4 + 512 // 4]
