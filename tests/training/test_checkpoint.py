import json
import os
from pathlib import Path

import pytest
import torch

from heedful.config import ModelConfig, TrainSettings
from heedful.errors import FolderError
from heedful.model.transformer import EncoderDecoder
from heedful.training import checkpoint
from heedful.training.checkpoint import TrainState
from heedful.training.optim.adam import Optimizer
from heedful.training.step import build_optimizer

CONFIG = ModelConfig(vocab_size=11, d_model=8, d_ff=8, n_heads=2, encoder_layers=1, decoder_layers=1, max_length=8)


def stepped(seed: int = 0) -> tuple[EncoderDecoder, Optimizer]:
    torch.manual_seed(seed)
    model = EncoderDecoder(CONFIG)
    optimizer = build_optimizer(model, TrainSettings(optimizer="muon"))
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step(0.01)
    return model, optimizer


def test_everything_comes_back_bit_for_bit(tmp_path: Path) -> None:
    model, optimizer = stepped()
    state = TrainState(update=7, epoch=2, batch=3, tokens=99, total=50, every=5, best=[1.5, -2.0], averaged=[5])
    path = checkpoint.save(tmp_path, model, optimizer, state, keep=2)
    other, other_optimiser = stepped(seed=1)
    assert checkpoint.load(path, other, other_optimiser) == state
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
        actual, reference = optimizer.state[a], other_optimiser.state[b]
        assert actual.keys() == reference.keys()
        assert len(actual) in (1, 3)  # Muon's, Adam's
        assert all(torch.equal(actual[kind], reference[kind]) for kind in actual)


def test_only_the_last_ones_are_kept_and_they_are_ordered_by_number(tmp_path: Path) -> None:
    model, optimizer = stepped()
    for update in (8, 9, 10, 100):
        checkpoint.save(tmp_path, model, optimizer, TrainState(update=update), keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-10", "step-100"]
    assert checkpoint.latest(tmp_path) == tmp_path / "step-100"


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"])
@pytest.mark.parametrize("damage", ["cut", "flip", "gone", "pipe", "link"])
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(tmp_path: Path, name: str, damage: str) -> None:
    model, optimizer = stepped()
    for update in (1, 2):
        checkpoint.save(tmp_path, model, optimizer, TrainState(update=update), keep=2)
    path = tmp_path / "step-2" / name
    data = path.read_bytes()
    if damage == "link":  # the same bytes, but out of the folder
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    elif damage in ("gone", "pipe"):
        path.unlink()
        if damage == "pipe":
            os.mkfifo(path)
    else:
        half = len(data) // 2
        path.write_bytes(data[:half] if damage == "cut" else data[:half] + bytes([data[half] ^ 4]) + data[half + 1 :])
    assert checkpoint.latest(tmp_path) == tmp_path / "step-1"
    (tmp_path / "step-1" / "state.json").write_text("{}")
    with pytest.raises(FolderError, match=r"every checkpoint is damaged \(step-2, step-1\)"):
        checkpoint.latest(tmp_path)


def test_a_damaged_checkpoint_needs_no_weights_and_damaged_weights_are_named(tmp_path: Path) -> None:
    model, optimizer = stepped()
    for update in (1, 2):
        state = TrainState(update=update)
        checkpoint.add_weights(tmp_path, model, state, keep=3)
        checkpoint.save(tmp_path, model, optimizer, state, keep=2)
    (tmp_path / "step-2" / "state.json").write_text("{")
    checkpoint.delete_unused_weights(tmp_path)
    assert [path.name for path in (tmp_path / "weights").iterdir()] == ["1.safetensors"]
    (tmp_path / "weights" / "1.safetensors").write_bytes(b"short")
    with pytest.raises(FolderError, match=r"weights/1\.safetensors cannot be read .* remove it and resume"):
        checkpoint.average(tmp_path, [1])


def test_weights_for_averaging_are_plain_files(tmp_path: Path) -> None:
    model, _ = stepped()
    state = TrainState()
    for state.update in (1, 2):
        checkpoint.add_weights(tmp_path, model, state, keep=3)
    path = tmp_path / "weights" / "2.safetensors"
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    for use in (lambda: checkpoint.average(tmp_path, [1, 2]), lambda: checkpoint.drop_lost(tmp_path, state)):
        with pytest.raises(FolderError, match=r"2\.safetensors is a link out of its folder"):
            use()
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(FolderError, match=r"2\.safetensors is not a plain file"):
        checkpoint.average(tmp_path, [1, 2])


@pytest.mark.parametrize("wrong", [{"update": "many"}, {"averaged": ["../x"]}, {"best": 3}, {"unknown": 1}], ids=str)
def test_a_state_that_makes_no_sense_is_reported_in_one_sentence(tmp_path: Path, wrong: dict[str, object]) -> None:
    model, optimizer = stepped()
    path = checkpoint.save(tmp_path, model, optimizer, TrainState(update=7), keep=2)
    (path / "state.json").write_text(json.dumps(json.loads((path / "state.json").read_text()) | wrong))
    with pytest.raises(FolderError, match=r"state\.json is damaged") as caught:
        checkpoint.load(path, model, optimizer)
    assert "\n" not in str(caught.value)


def test_a_full_disk_leaves_the_previous_checkpoint_and_no_rubbish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, optimizer = stepped()
    checkpoint.save(tmp_path, model, optimizer, TrainState(update=1), keep=2)

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("heedful.storage.module_weights.save_file", full)
    with pytest.raises(FolderError, match="No space left on device"):
        checkpoint.save(tmp_path, model, optimizer, TrainState(update=2), keep=2)
    assert [path.name for path in tmp_path.iterdir()] == ["step-1"]
    assert checkpoint.latest(tmp_path) == tmp_path / "step-1"


def test_the_average_is_the_mean_of_the_last_weights(tmp_path: Path) -> None:
    state, models = TrainState(), []
    for update in (10, 20, 30, 40):
        model, optimizer = stepped(update)
        models.append(model)
        state.update = update
        checkpoint.add_weights(tmp_path, model, state, keep=3)
        checkpoint.save(tmp_path, model, optimizer, state, keep=1)
        checkpoint.delete_unused_weights(tmp_path)
    assert state.averaged == [20, 30, 40]
    assert sorted(path.name for path in (tmp_path / "weights").iterdir()) == [f"{u}.safetensors" for u in (20, 30, 40)]
    mean = checkpoint.average(tmp_path, state.averaged)
    for name, value in mean.items():
        expected = torch.stack([model.state_dict()[name].double() for model in models[1:]]).mean(0)
        torch.testing.assert_close(value, expected.float(), rtol=0, atol=0)
