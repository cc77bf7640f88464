"""Benchmarks train by CPU time, so that other work on the machine takes nothing from a run."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from rich.console import Console

from heedful.config import load_config
from heedful.training import setup
from heedful.training.run_report import RunReport
from tests.conftest import TINY

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_a_run_of_a_benchmark_counts_the_cpu_time_of_each_thread(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import runs

    monkeypatch.setattr(setup, "TrainingRun", setup.TrainingRun)  # restored after the test
    runs.count_cpu_time(threads=2)
    files = {"source": corpus / "train.en", "target": corpus / "train.de", "cache_dir": tmp_path / "store"}
    run = setup.open_run(
        load_config(None, TINY, data=files), tmp_path / "out", False, RunReport(tmp_path / "out", Console(quiet=True))
    )
    monkeypatch.setattr(time, "process_time", lambda: 84.0)
    assert run.now() == 42.0
