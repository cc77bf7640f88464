"""Threads are the same number before torch is there and after."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from heedful.ops.threads import compute_with_one_thread, num_threads, set_num_threads

CODE = """
import sys
from heedful.ops.threads import num_threads, set_num_threads
given = [num_threads()]
for count in map(int, sys.argv[1:]):
    set_num_threads(count)
    given.append(num_threads())
assert "torch" not in sys.modules
import torch
print(given, torch.get_num_threads(), num_threads())
set_num_threads(1)
print(torch.get_num_threads())
"""


@pytest.mark.parametrize(
    "variable, words, log",
    [
        pytest.param("2", [], "[2] 2 2", marks=pytest.mark.long),
        pytest.param("2", ["1"], "[2, 1] 1 1", marks=pytest.mark.long),
        ("1", ["2"], "[1, 2] 2 2"),
        ("2,1", [], "[2] 2 2"),
    ],
)
def test_torch_gets_the_number_of_threads_set_before_its_import(variable: str, words: list[str], log: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE, *words],
        env=os.environ | {"OMP_NUM_THREADS": variable},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == [log, "1"]


def test_an_imported_torch_tells_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert num_threads() == before
    try:
        set_num_threads(2)
        assert num_threads() == torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_all_cores_compute_by_default() -> None:
    code = "from heedful.ops.threads import num_threads; print(num_threads())"
    for variable in ("", "0", "many"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"OMP_NUM_THREADS": variable},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert int(done.stdout) == len(os.sched_getaffinity(0))


def test_one_python_thread_may_compute_with_one_thread_while_the_others_keep_theirs():
    before = torch.get_num_threads()
    set_num_threads(3)
    try:
        with ThreadPoolExecutor(1) as alone, ThreadPoolExecutor(1) as earlier, ThreadPoolExecutor(1) as later:
            assert earlier.submit(num_threads).result() == 3
            alone.submit(compute_with_one_thread).result()
            counts = [pool.submit(num_threads).result() for pool in (alone, earlier, later)]
        assert counts == [1, 3, 3]
        assert num_threads() == 3
    finally:
        set_num_threads(before)
