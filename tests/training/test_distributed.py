"""Two real processes under torchrun learn what one process learns."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from heedful.config import load_config
from heedful.errors import SettingError
from heedful.training.distributed import Distributed
from heedful.training.setup import _divide_micro_batches
from tests.conftest import ENGINE, TINY


def run(corpus: Path, out: Path, *settings: str, ranks: int = 1, env: dict[str, str] | None = None) -> str:
    """A training by the command line -> its log."""
    program = [sys.executable, "-m", "heedful"]
    if ranks > 1:
        program = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "-m"]
        program += ["heedful"]
    files = ["--source", corpus / "train.en", "--target", corpus / "train.de"]
    files += ["--valid-source", corpus / "valid.en", "--valid-target", corpus / "valid.de"]
    command = [*program, "train", *TINY, *settings]
    done = subprocess.run(
        [str(word) for word in [*command, *files, "--out", out]],
        env=os.environ | {"OMP_NUM_THREADS": "1"} | (env or {}),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def learned(corpus: Path, out: Path, *settings: str, ranks: int = 1) -> dict[str, torch.Tensor]:
    """The weights after six updates."""
    run(corpus, out, "train.max_updates=6", "train.checkpoint_every=6", *settings, ranks=ranks)
    return load_file(out / "checkpoints" / "step-6" / "model.safetensors")


CHANCE = [
    "model.dropout=0.1", "train.sampled_softmax=40", "train.bpe_dropout=0.2", "train.rdrop=2", "train.optimizer=muon",
]  # fmt: skip


@pytest.mark.parametrize(
    "widths", [pytest.param([], marks=pytest.mark.long, id="torch"), pytest.param(ENGINE, id="engine")]
)
def test_two_ranks_equal_two_accumulations_bit_for_bit_with_all_that_is_random(
    corpus: Path, tmp_path: Path, widths: list[str]
) -> None:
    two = learned(corpus, tmp_path / "two", *CHANCE, *widths, ranks=2)
    one = learned(corpus, tmp_path / "one", *CHANCE, *widths, "train.micro_batches=2")
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.long
def test_two_ranks_equal_one_undivided_batch_within_rounding(corpus: Path, tmp_path: Path) -> None:
    exact = ["model.dropout=0", "train.sampled_softmax=0", "train.precision=float32"]
    whole = learned(corpus, tmp_path / "whole", *exact)
    parts = learned(corpus, tmp_path / "parts", *exact, "train.micro_batches=2", ranks=2)
    for name in whole:
        if not name.endswith(
            "key.bias"
        ):  # softmax does not see it: its gradient is rounding noise, which Adam blows up
            torch.testing.assert_close(whole[name], parts[name], rtol=1e-3, atol=1e-4)


# Imported by every process at its start: the main rank measures 60 passes, and each rank writes the α of its R-Drop.
MEASURING = """
import os
from pathlib import Path

if "PLANS" in os.environ and "RANK" in os.environ:
    from heedful.training import setup

    rank, add_rdrop = int(os.environ["RANK"]), setup.add_rdrop

    def passes_in_time(*arguments):
        assert rank == 0, "only the main rank measures"
        return 60.0

    def write_rdrop(*arguments):
        config = add_rdrop(*arguments)
        Path(os.environ["PLANS"], f"rdrop-{rank}").write_text(str(config.train.rdrop))
        return config

    setup.passes_in_time, setup.add_rdrop = passes_in_time, write_rdrop
"""


@pytest.mark.long
def test_two_ranks_plan_for_a_time_together(corpus: Path, tmp_path: Path) -> None:
    """The main rank alone measures the passes that fit into the time, and both ranks plan by its result."""
    (tmp_path / "sitecustomize.py").write_text(MEASURING)
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    log = run(corpus, tmp_path / "out", "train.time=5s", ranks=2, env={"PYTHONPATH": paths, "PLANS": str(tmp_path)})
    assert "R-Drop: 5s is enough for 60 passes" in log
    assert "training ended after" in log
    assert [(tmp_path / f"rdrop-{rank}").read_text() for rank in (0, 1)] == ["5.0", "5.0"]


SHARING = """
import torch
from heedful.training.distributed import Distributed
distributed = Distributed("cpu")
weight = torch.nn.Parameter(torch.full((2, 3), float(distributed.rank + 5)))
distributed.share([weight])
assert weight.eq(5).all(), weight
distributed.close()
"""


def test_all_ranks_begin_with_the_weights_of_the_first(tmp_path: Path) -> None:
    (tmp_path / "sharing.py").write_text(SHARING)
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", tmp_path / "sharing.py"]
    done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr


def test_more_processes_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(SettingError, match="more processes than GPUs \\(1\\)"):
        Distributed("auto")


@pytest.mark.parametrize(
    ("device", "words", "pieces"), [("cpu", [], 8), ("cuda", [], 2), ("cuda", ["train.micro_batches=8"], 8)]
)
def test_gpus_share_the_micro_batches_of_an_update(device: str, words: list[str], pieces: int) -> None:
    requested = load_config(None, words)
    config = requested.with_defaults({"train": {"micro_batches": 8}}, preset="base")
    distributed = SimpleNamespace(device=torch.device(device), world=4)
    assert _divide_micro_batches(config, requested, distributed).train.micro_batches == pieces  # type: ignore[arg-type]
