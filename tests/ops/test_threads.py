"""Threads are the same number before torch is there and after."""

import os
import subprocess
import sys

import pytest
import torch

from heedful.ops.threads import set_threads, threads

CODE = """
import sys
from heedful.ops.threads import set_threads, threads
given = [threads()]
for count in map(int, sys.argv[1:]):
    set_threads(count)
    given.append(threads())
assert "torch" not in sys.modules
import torch
print(given, torch.get_num_threads(), threads())
set_threads(1)
print(torch.get_num_threads())
"""


@pytest.mark.parametrize(
    "variable, words, said",
    [("2", [], "[2] 2 2"), ("2", ["1"], "[2, 1] 1 1"), ("1", ["2"], "[1, 2] 2 2"), ("2,1", [], "[2] 2 2")],
)
def test_torch_takes_what_was_said_before_it_came(variable: str, words: list[str], said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE, *words],
        env=os.environ | {"OMP_NUM_THREADS": variable},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == [said, "1"]


def test_torch_is_asked_if_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert threads() == before
    try:
        set_threads(2)
        assert threads() == torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_without_a_word_all_cores_compute() -> None:
    code = "from heedful.ops.threads import threads; print(threads())"
    for variable in ("", "0", "many"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"OMP_NUM_THREADS": variable},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert int(done.stdout) == len(os.sched_getaffinity(0))
