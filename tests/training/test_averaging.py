"""Which of the last weights, and which mean of them, a validation takes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from heedful.config import load_config
from heedful.storage.folder import ModelFolder, load_folder
from heedful.training import averaging, checkpoint
from heedful.training.loop import TrainingRun, train
from heedful.training.run_report import RunReport, read_metrics
from heedful.training.setup import open_run
from tests.conftest import TINY

Weights = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


def bleu(folder: ModelFolder, *context: object) -> dict[str, float]:
    return {"valid_bleu": 10.0, "valid_chrf": 10.0}


@pytest.fixture
def run(corpus: Path, store: Path, tmp_path: Path) -> TrainingRun:
    """A run of 24 updates in three checkpoints, at a rate at which the last weights are much better than the first."""
    files = {"source": corpus / "train.en", "target": corpus / "train.de", "cache_dir": store}
    files |= {"valid_source": corpus / "valid.en", "valid_target": corpus / "valid.de"}
    words = ["train.max_updates=24", "train.checkpoint_every=8", "train.learning_rate=0.02", "train.schedule=linear"]
    requested = load_config(None, [*TINY, *words, "train.optimizer=muon"], data=files)
    run = open_run(requested, tmp_path / "out", False, RunReport(tmp_path / "out", Console(quiet=True)))
    run.task.measure = bleu
    run.start_time()
    return run


def keep(run: TrainingRun, *changes: Callable[[torch.Tensor], torch.Tensor]) -> Weights:
    """Checkpoints whose weights are those of the model, changed; the state is at the last of 24 updates."""
    weights = {name: value.clone() for name, value in run.model.state_dict().items()}
    for change in changes:
        run.model.load_state_dict({name: change(value) for name, value in weights.items()})
        run.state.update += 8
        checkpoint.add_weights(run.checkpoints, run.model, run.state, keep=5)
    run.state.total = 24
    return weights


def same(run: TrainingRun, weights: Weights) -> bool:
    return all(torch.allclose(value, weights[name], atol=1e-6) for name, value in run.averaged.state_dict().items())


@pytest.mark.parametrize(
    ("remaining", "result"),
    [(1, [1]), (2, [1, 2]), (3, [1, 3]), (4, [1, 2, 4]), (5, [1, 2, 5]), (20, [1, 2, 5, 10, 20])],
)
def test_candidates_are_the_last_weights_and_means_of_some(remaining: int, result: list[int]) -> None:
    assert averaging.candidate_sizes(remaining) == result


def test_a_short_run_publishes_its_last_weights_where_the_mean_is_worse(run: TrainingRun, tmp_path: Path) -> None:
    state = train(run)
    last = load_file(tmp_path / "out/checkpoints/step-24/model.safetensors")
    assert (state.best_update, state.average, state.averaged) == (24, 1, [8, 16, 24])
    assert all(
        torch.equal(last[name], value) for name, value in load_folder(tmp_path / "out").model.state_dict().items()
    )
    assert "averaged" not in (tmp_path / "out/README.md").read_text(encoding="utf-8")
    record = read_metrics(tmp_path / "out")[-1]
    assert record["average"] == 1
    assert record["average_1_loss"] < record["average_3_loss"]


def test_a_mean_that_is_better_than_the_last_weights_is_taken(run: TrainingRun) -> None:
    torch.manual_seed(0)
    noise = [torch.empty(0)]

    def away(value: torch.Tensor) -> torch.Tensor:
        noise.append(torch.randn_like(value))
        return value + noise[-1]

    def back(value: torch.Tensor) -> torch.Tensor:
        return value - noise.pop(1)

    weights = keep(run, away, back)
    choice = averaging.choose(run)
    assert run.state.average == choice.record["average"] == 2
    assert same(run, weights)
    assert "mean of 2 checkpoints: loss" in choice.lines[0] and choice.lines[0].endswith("(selected)")


@pytest.mark.parametrize(
    ("total", "close", "measured", "average"), [(24, 0.02, 2, 3), (24, 0.005, 1, 1), (32, 0.02, 1, 1)]
)
def test_the_end_measures_two_that_are_close_and_their_use_decides(
    run: TrainingRun, monkeypatch: pytest.MonkeyPatch, total: int, close: float, measured: int, average: int
) -> None:
    """The last weights have the better loss, by very little, and the mean the better BLEU."""
    keep(run, lambda value: value * 1.001, lambda value: value * 1.001, lambda value: value)
    monkeypatch.setattr(averaging, "CLOSE", close)
    losses = {1: 2.0, 3: 2.01}
    loaded: list[int] = []
    monkeypatch.setattr(averaging, "load", lambda run, count: loaded.append(count))
    monkeypatch.setattr(averaging, "validation_scores", lambda *inputs: {"valid_loss": losses[loaded[-1]]})
    run.state.total = total
    result: list[float] = []

    def measure(*context: object) -> dict[str, float]:
        result.append(5.0 * (1 + len(result)))
        return {"valid_bleu": result[-1], "valid_chrf": 0.0}

    run.task.measure = measure
    choice = averaging.choose(run)
    assert (len(result), run.state.average) == (measured, average)
    assert choice.scores["valid_bleu"] == result[-1]
    assert ("average_1_valid_bleu" in choice.record) == (measured == 2)


def test_only_a_part_of_a_large_validation_set_compares_them(run: TrainingRun, monkeypatch: pytest.MonkeyPatch) -> None:
    read_tokens: list[int] = []
    loss = run.task.loss

    def counting(model: object, piece: object) -> object:
        result = loss(model, piece)
        read_tokens.append(result.tokens)
        return result

    monkeypatch.setattr(run.task, "loss", counting)
    monkeypatch.setattr(run.task, "batch_tokens", 64)
    keep(run, lambda value: value)
    averaging.load(run, 1)
    averaging.validation_scores(run)
    whole = sum(read_tokens)
    read_tokens.clear()
    averaging.validation_scores(run, most_tokens=whole // 2)
    assert whole // 2 <= sum(read_tokens) < whole
