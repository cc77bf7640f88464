"""Kill and resume = never interrupted, bit for bit; and what resuming refuses."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from heedful import config
from heedful.config import RunConfig
from heedful.errors import FolderError, HeedfulError, SettingError
from heedful.native import library
from heedful.ops.cross_entropy import Loss
from heedful.storage import folder
from heedful.training.loop import TrainingRun, train
from heedful.training.run_report import RunReport, read_metrics
from heedful.training.setup import open_run
from tests.conftest import ENGINE, TINY

SETTINGS = [*TINY, "model.dropout=0.2", "train.micro_batches=3", "train.max_updates=14", "train.checkpoint_every=4"]
SETTINGS += [
    "train.optimizer=muon",
    "train.sampled_softmax=40",
    "train.bpe_dropout=0.2",
    "train.rdrop=2",
]  # some of Muon's weights are Adam's


class Killed(BaseException):
    """Stands for SIGKILL: nothing between here and the test catches it."""


def settings(corpus: Path, store: Path, *more: str) -> RunConfig:
    data = {"source": corpus / "train.en", "target": corpus / "train.de", "cache_dir": store}
    data |= {"valid_source": corpus / "valid.en", "valid_target": corpus / "valid.de"}
    return config.load_config(None, [*SETTINGS, *more], data=data)


def scores(folder: folder.ModelFolder, *context: object) -> dict[str, float]:
    """Stands for BLEU and chrF: a number that depends on the weights."""
    return {"valid_bleu": float(folder.model.embedding.weight.detach().abs().sum()) % 100, "valid_chrf": 0.0}


def open_(requested: RunConfig, out: Path, resume: bool = False) -> TrainingRun:
    run = open_run(requested, out, resume, RunReport(out, Console(quiet=True)))
    run.task.measure = scores
    return run


def killing(run: TrainingRun, update: int, micro_batch: int) -> Callable[..., Loss]:
    """The loss function of a run that dies in the given micro-batch of the given update."""
    loss_of, calls = run.loss_of, [0]

    def loss(batch: object) -> Loss:
        calls[0] += 1
        if calls[0] == (update - 1) * 3 + micro_batch:
            raise Killed
        return loss_of(batch)

    return loss


def files(out: Path) -> dict[str, torch.Tensor]:
    weights = load_file(out / "model.safetensors")
    weights |= {
        f"last.{name}": value for name, value in load_file(out / "checkpoints/step-14/model.safetensors").items()
    }
    moments = load_file(out / "checkpoints/step-14/optimizer.safetensors")
    return weights | {f"optimizer.{name}": value for name, value in moments.items()}


@pytest.fixture(scope="module")
def finished(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    state = train(open_(settings(corpus, folder / "store"), folder / "out"))
    assert state.ended == "all updates done"
    assert state.epoch >= 1, "the run has to cross the border of an epoch"
    return folder


@pytest.mark.parametrize(("update", "micro_batch"), [(1, 1), (3, 2), (5, 1), (9, 3), (13, 2), (14, 1)])
def test_killed_and_resumed_equals_never_interrupted(
    corpus: Path, finished: Path, tmp_path: Path, update: int, micro_batch: int
) -> None:
    requested, out = settings(corpus, finished / "store"), tmp_path / "out"
    run = open_(requested, out)
    run.loss_of = killing(run, update, micro_batch)  # type: ignore[method-assign]
    with pytest.raises(Killed):
        train(run)
    torch.manual_seed(12345)  # the state of the generator must not matter
    train(open_(requested, out, resume=True))
    actual, expected = files(out), files(finished / "out")
    assert actual.keys() == expected.keys()
    assert all(torch.equal(actual[name], expected[name]) for name in actual)
    same = [{k: v for k, v in r.items() if k not in ("seconds", "tokens_per_second")} for r in read_metrics(out)]
    validations = [r for r in read_metrics(finished / "out") if "valid_loss" in r]
    assert [r for r in same if "valid_loss" in r] == validations


@pytest.mark.parametrize(
    "more", [["train.precision=float32"], ["train.precision=bfloat16"], ["model.pointer=true", "train.rdrop=0"]]
)
def test_the_native_engine_resumes_exactly_too(corpus: Path, finished: Path, tmp_path: Path, more: list[str]) -> None:
    requested = settings(corpus, finished / "store", *ENGINE, *more)
    whole, killed = open_(requested, tmp_path / "whole"), open_(requested, tmp_path / "killed")
    assert (whole.backend.native is None) == (library() is None)
    train(whole)
    killed.loss_of = killing(killed, 6, 2)  # type: ignore[method-assign]
    with pytest.raises(Killed):
        train(killed)
    train(open_(requested, tmp_path / "killed", resume=True))
    actual, expected = files(tmp_path / "killed"), files(tmp_path / "whole")
    assert all(torch.equal(actual[name], expected[name]) for name in expected)


def test_annotated_terms_are_the_same_after_resuming(corpus: Path, tmp_path: Path) -> None:
    requested = settings(corpus, tmp_path / "store", "train.glossary_augmentation=0.8")
    whole, killed = open_(requested, tmp_path / "whole"), open_(requested, tmp_path / "killed")
    train(whole)
    assert whole.task.corpus.report.annotated > 10
    killed.loss_of = killing(killed, 6, 2)  # type: ignore[method-assign]
    with pytest.raises(Killed):
        train(killed)
    shutil.rmtree(tmp_path / "store")  # annotated and encoded anew
    train(open_(requested, tmp_path / "killed", resume=True))
    actual, expected = files(tmp_path / "killed"), files(tmp_path / "whole")
    assert all(torch.equal(actual[name], expected[name]) for name in expected)


def test_the_engine_can_be_set(corpus: Path, finished: Path, tmp_path: Path) -> None:
    run = open_(settings(corpus, finished / "store", *ENGINE, "train.backend=torch"), tmp_path / "torch")
    assert run.backend.native is None
    for precision in ("float32", "bfloat16"):
        run = open_(settings(corpus, finished / "store", *ENGINE, f"train.precision={precision}"), tmp_path / precision)
        assert run.backend.native is None if library() is None else run.backend.native.precision == precision


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_resuming_equals_never_interrupted(
    corpus: Path, finished: Path, tmp_path: Path, number: int
) -> None:
    requested, out = settings(corpus, finished / "store"), tmp_path / "out"
    run = open_(requested, out)
    loss_of, calls = run.loss_of, [0]

    def interrupting(batch: object) -> Loss:
        calls[0] += 1
        if calls[0] == 17:
            os.kill(os.getpid(), number)
        return loss_of(batch)

    run.loss_of = interrupting  # type: ignore[method-assign]
    assert train(run).ended == "interrupted"
    assert not (out / "checkpoints/step-14").exists()
    assert train(open_(requested, out, resume=True)).ended == "all updates done"
    actual, expected = files(out), files(finished / "out")
    assert all(torch.equal(actual[name], expected[name]) for name in expected)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_last_validation_ends_the_run_after_saving(
    corpus: Path, finished: Path, tmp_path: Path, number: int
) -> None:
    requested, out = settings(corpus, finished / "store"), tmp_path / "out"
    run = open_(requested, out)
    run.report.callback = lambda record: (
        os.kill(os.getpid(), number) if record.get("valid_loss") and record["update"] == 14 else None
    )
    with pytest.raises(KeyboardInterrupt):
        train(run)
    actual, expected = files(out), files(finished / "out")
    assert all(torch.equal(actual[name], expected[name]) for name in expected)
    assert open_(requested, out, resume=True).state.ended == "all updates done"


def test_metrics_tensorboard_and_table_agree(finished: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(finished / "out/tensorboard"))
    events.Reload()
    records = [record for record in read_metrics(finished / "out") if "valid_loss" in record]
    assert [record["update"] for record in records] == [4, 8, 12, 14]
    board = [(event.step, event.value) for event in events.Scalars("valid_loss")]
    assert board == [(r["update"], pytest.approx(r["valid_loss"], rel=1e-6)) for r in records]


def test_a_new_run_does_not_touch_an_existing_folder(corpus: Path, finished: Path) -> None:
    before = (finished / "out/model.safetensors").read_bytes()
    with pytest.raises(FolderError, match=r"exists already; resume its run .--resume"):
        open_(settings(corpus, finished / "store"), finished / "out")
    assert (finished / "out/model.safetensors").read_bytes() == before


def test_there_must_be_something_to_resume(corpus: Path, finished: Path, tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="holds no run to resume"):
        open_(settings(corpus, finished / "store"), tmp_path / "nothing", resume=True)


def test_a_finished_run_is_left_alone_and_can_be_extended(corpus: Path, finished: Path) -> None:
    assert open_(settings(corpus, finished / "store"), finished / "out", resume=True).state.ended == "all updates done"
    longer = open_(settings(corpus, finished / "store", "train.max_updates=20"), finished / "out", resume=True)
    assert (longer.state.ended, longer.state.total) == ("", 20)


@pytest.mark.parametrize(
    "change", ["model.dropout=0.3", "train.seed=9", "train.batch_tokens=300", "text.lowercase=true", "preset=big"]
)
def test_resuming_with_other_settings_is_refused_by_name(corpus: Path, finished: Path, change: str) -> None:
    with pytest.raises(SettingError, match=change.partition("=")[0]):
        open_(settings(corpus, finished / "store", change), finished / "out", resume=True)


def test_settings_that_a_preset_completes_may_be_asked_for_again(corpus: Path, finished: Path, tmp_path: Path) -> None:
    requested = settings(corpus, finished / "store")
    words = [item for item in SETTINGS if not item.startswith(("model.d_model", "model.n_heads"))]
    requested = config.load_config(
        None, [*words, "model.d_model=36"], data=requested.data.model_dump(exclude_unset=True)
    )
    assert (
        open_(requested, tmp_path / "out").config.model.n_heads == 4
    )  # of preset tiny; 36 is no multiple of the usual 8
    assert open_(requested, tmp_path / "out", resume=True).config.model.d_model == 36


def test_a_resumed_run_keeps_its_threads(
    corpus: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", inputs.append)
    open_(settings(corpus, finished / "store", "train.threads=3"), tmp_path / "out")
    open_(settings(corpus, finished / "store"), tmp_path / "out", resume=True)
    open_(settings(corpus, finished / "store", "train.threads=2"), tmp_path / "out", resume=True)
    assert inputs == [3, 3, 2]


def test_another_number_of_threads_is_logged_when_a_run_is_resumed(
    corpus: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        torch, "set_num_threads", lambda count: monkeypatch.setattr(torch, "get_num_threads", lambda: count)
    )

    def said(*more: str, resume: bool) -> str:
        console = Console(record=True, quiet=False, file=io.StringIO(), width=300)
        open_run(
            settings(corpus, finished / "store", *more), tmp_path / "out", resume, RunReport(tmp_path / "out", console)
        )
        return console.export_text()

    assert "bit-identical" not in said("train.threads=2", resume=False)
    assert "bit-identical" not in said(resume=True)
    told = "1 CPU thread now and 2 before: sums are rounded in another order, so the weights will not be bit-identical"
    assert told in said("train.threads=1", resume=True)
    assert "bit-identical" not in said("train.threads=1", resume=True)


def test_missing_weights_for_the_mean_are_logged_and_left_out(corpus: Path, finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished / "out", tmp_path / "out")
    (tmp_path / "out/checkpoints/weights/12.safetensors").unlink()
    said = Console(record=True, quiet=False, file=io.StringIO(), width=200)
    requested = settings(corpus, finished / "store", "train.max_updates=15")
    run = open_run(requested, tmp_path / "out", True, RunReport(tmp_path / "out", said))
    run.task.measure = scores
    assert "weights of update 12 are missing" in said.export_text()
    assert run.state.averaged == [4, 8, 14]
    assert train(run).averaged == [4, 8, 14, 15]


def test_resuming_needs_no_other_argument_than_the_folder(finished: Path) -> None:
    run = open_(
        config.load_config(None, [f"data.cache_dir={json.dumps(str(finished / 'store'))}"]),
        finished / "out",
        resume=True,
    )
    assert run.config.model.d_model == 16


def test_resuming_on_a_changed_corpus_is_refused(corpus: Path, finished: Path, tmp_path: Path) -> None:
    changed = tmp_path / "changed.de"
    changed.write_text((corpus / "train.de").read_text(encoding="utf-8").replace("der", "dar"), encoding="utf-8")
    requested = settings(corpus, finished / "store", f"data.target={json.dumps(str(changed))}")
    before = sorted((finished / "store").iterdir())
    with pytest.raises(FolderError, match=r"trained on another corpus.* in another folder with init .*/out\."):
        open_(requested, finished / "out", resume=True)
    assert [path for path in sorted((finished / "store").iterdir()) if path.is_dir()] == [
        path for path in before if path.is_dir()
    ]  # nothing was encoded


def test_early_stopping_counts_validations_without_a_better_score(corpus: Path, finished: Path, tmp_path: Path) -> None:
    requested = settings(corpus, finished / "store", "train.checkpoint_every=1", "train.patience=2")
    run = open_(requested, tmp_path / "out")
    falling = iter(range(50, 0, -1))
    run.task.measure = lambda *context: {"valid_bleu": float(next(falling)), "valid_chrf": 0.0}
    state = train(run)
    assert (state.update, state.best_update, state.ended) == (3, 1, "no better score in 2 validations")
    assert open_(requested, tmp_path / "out", resume=True).state.ended
    patient = settings(corpus, finished / "store", "train.checkpoint_every=1", "train.patience=3")
    assert not open_(patient, tmp_path / "out", resume=True).state.ended


def test_a_broken_loss_keeps_the_last_checkpoint(corpus: Path, finished: Path, tmp_path: Path) -> None:
    run = open_(settings(corpus, finished / "store"), tmp_path / "out")
    loss_of, calls = run.loss_of, [0]

    def broken(batch: object) -> Loss:
        calls[0] += 1
        loss = loss_of(batch)
        return Loss(loss.smoothed * float("nan"), loss.likelihood, loss.tokens) if calls[0] > 15 else loss

    run.loss_of = broken  # type: ignore[method-assign]
    with pytest.raises(HeedfulError, match="at update 6"):
        train(run)
    assert folder.load_folder(tmp_path / "out")
    assert open_(settings(corpus, finished / "store"), tmp_path / "out", resume=True).state.update == 4
