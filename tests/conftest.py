"""Small corpora and settings that many tests share."""

from __future__ import annotations

import os
import signal

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the models are tiny: a second thread only gets in the way
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as scripts start what runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from heedful import demo
from heedful.ops.threads import set_num_threads
from heedful.training import run_report

hypothesis.settings.register_profile("busy", deadline=None)  # a busy machine is no failure
hypothesis.settings.load_profile("busy")

LONGEST = ["learn", "training", "cli", "interop"]  # folders whose files take longest
TINY = [
    "model.d_model=16",
    "model.d_ff=32",
    "model.n_heads=2",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "train.batch_tokens=384",
    "train.warmup=5",
    "train.valid_sentences=8",
    "search.beam=2",
    "search.max_extra=3",
]
ENGINE = ["model.d_model=64", "model.d_ff=64"]  # widths that the compiled engine learns, on any CPU


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first, so that no worker is left alone with it at the end.

    xdist keeps this order only with --no-loadscope-reorder; by itself it would put files with few tests last.
    """
    last = len(LONGEST)
    items.sort(key=lambda item: next((i for i, name in enumerate(LONGEST) if name in item.path.parts), last))


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Every test begins with one thread, whatever a command of the one before has set.

    Two threads in each of several workers wait for each other longer than they compute, and gradients of one and of
    two threads differ in the last digit.
    """
    set_num_threads(1)
    yield
    set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def no_pictures() -> Iterator[None]:
    """Trainings within a test leave an empty learning curve: drawing it takes as long as their few updates.

    Trainings that tests start as processes draw theirs.
    """

    def leave_empty(folder: Path, score: object) -> Path:
        (folder / run_report.CURVE).touch()
        return folder / run_report.CURVE

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_report, "draw_curve", leave_empty)
        yield


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train.en, train.de, valid.en and valid.de from the embedded grammar."""
    folder = tmp_path_factory.mktemp("corpus")
    pairs = demo.generate(180, seed=3)
    for name, part in (("train", pairs[:160]), ("valid", pairs[160:])):
        (folder / f"{name}.en").write_text("".join(f"{pair.source}\n" for pair in part), encoding="utf-8")
        (folder / f"{name}.de").write_text("".join(f"{pair.target}\n" for pair in part), encoding="utf-8")
    return folder
