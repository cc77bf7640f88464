"""What goes through the pipe comes out of it, however it is cut; and how long it is said to take."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from heedful.serve import model_process
from heedful.serve.messages import Event, MessageReader, WorkerTask, pack_messages

messages = st.one_of(
    st.integers(), st.builds(WorkerTask, st.integers(), st.dictionaries(st.text(max_size=3), st.text(), max_size=2)),
    st.builds(Event, st.integers(), st.sampled_from(["delta", "done"]), st.text()),
)  # fmt: skip


@given(st.lists(st.lists(messages, max_size=4), max_size=5), st.lists(st.integers(0, 400), max_size=9))
def test_messages_come_out_as_they_went_in(bunches, cuts):
    data, unpacked, result = b"".join(map(pack_messages, bunches)), MessageReader(), []
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in pairwise(edges):
        result += unpacked(data[start:end])
    assert result == [item for bunch in bunches for item in bunch]
    assert unpacked.size == 0


def test_the_pace_is_that_of_the_last_seconds_and_nothing_older_is_kept(monkeypatch):
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(model_process, "time", SimpleNamespace(monotonic=lambda: clock.now))
    pace = model_process.ThroughputMeter()
    assert pace.seconds_for(50) == 1.0  # nothing is known
    for _ in range(600):  # 20 a second for a minute
        pace.add(2)
        clock.now += 0.1
    assert abs(pace.seconds_for(50) - 2.5) < 0.05
    assert len(pace.done) <= 10 * model_process.THROUGHPUT_WINDOW_SECONDS + 1
    clock.now += model_process.THROUGHPUT_WINDOW_SECONDS
    assert pace.seconds_for(50) == 1.0 and not pace.done and not pace.total
