"""Every system must learn to copy and to reverse, and goes on after a crash as if nothing had been."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from heedful import config
from heedful.data.batch import Batch
from heedful.errors import SettingError
from heedful.inference.torch_backend import ModelNextToken
from heedful.model.transformer import build_model
from heedful.search import SearchOptions
from heedful.search.beam import beam_search
from heedful.storage import folder
from heedful.training.loop import train
from heedful.training.losses import translation_loss
from tests.training.test_resume import Killed, killing, open_, settings

COPY, REVERSE, FIRST = 4, 5, 6
SIZES = {"vocab_size": 14, "d_model": 48, "d_ff": 96, "n_heads": 4, "encoder_layers": 2, "decoder_layers": 2}
ONE = {"pre_norm": True, "encoder_layers": 1, "decoder_layers": 1}
SYSTEMS = {  # settings, learning rate, updates
    "rnn-additive": ({"architecture": "rnn", "cell": "gru", "source_attention": "additive"}, 2e-2, 100),
    "lstm-dot": ({"architecture": "rnn", "source_attention": "dot"}, 1e-2, 150),
    "flstm-local-p": (
        {"architecture": "rnn", "cell": "flstm", "source_attention": "general", "source_span": "local-p"},
        2e-2,
        150,
    ),
    "concat": ({"architecture": "rnn", "cell": "gru", "source_attention": "concat"}, 2e-2, 100),
    "conv": ({"architecture": "conv"}, 4e-3, 120),
    "separable": ({"architecture": "conv", "separable": True}, 4e-3, 150),
    "bytenet": ({"architecture": "bytenet", "encoder_layers": 3, "decoder_layers": 3}, 5e-3, 150),
    "neural-gpu": ({"architecture": "neural-gpu", "d_model": 24, "memory_width": 2}, 1e-2, 150),
    "rms": ({"norm": "rms"} | ONE, 1e-2, 200),
    "experts": ({"experts": 4, "load_balance": 0.01} | ONE, 1e-2, 250),
    "batch-norm": ({"norm": "batch"} | ONE, 1e-2, 150),
    "instance-norm": ({"norm": "instance"} | ONE, 1e-2, 400),
    "window": ({"attention": "window", "attention_window": 2} | ONE, 1e-2, 150),
    "sparse": ({"attention": "sparse", "attention_window": 1, "attention_stride": 3} | ONE, 1e-2, 150),
    "linformer": ({"attention": "linformer", "decoder_attention": "full", "attention_rank": 8} | ONE, 1e-2, 150),
    "linear": ({"attention": "linear"} | ONE, 1e-2, 200),
    "universal": ({"universal": True}, 5e-3, 250),
    "act_halting": ({"universal": True, "act_halting": True, "pre_norm": True}, 1e-2, 200),
}
LONG = {"rnn-additive", "sparse", "linformer", "linear", "universal"}  # all but their learning is tested each time
LONG |= {"bytenet", "neural-gpu", "rms", "flstm-local-p", "separable", "experts", "batch-norm", "instance-norm"}
pytestmark = pytest.mark.slow


def batch(rows: int, seed: int) -> Batch:
    """Two or three digits behind a token that says what is to be done with them."""
    generator = torch.Generator().manual_seed(seed)
    digits = torch.randint(FIRST, 14, (rows, 4), generator=generator)
    lengths = torch.randint(2, 4, (rows, 1), generator=generator)
    task, place = COPY + torch.arange(rows).unsqueeze(1) % 2, torch.arange(4)
    turned = torch.where(task == COPY, digits, digits.gather(1, (lengths - 1 - place).clamp(min=0)))
    source, target = (
        torch.cat((first, content.masked_fill(place >= lengths, 0), torch.zeros(rows, 1, dtype=torch.long)), 1).scatter(
            1, lengths + 1, 3
        )
        for first, content in ((task, digits), (torch.full_like(task, 2), turned))
    )
    lengths = lengths.squeeze(1)
    return Batch(source, target, lengths + 2, lengths + 1, int((lengths + 1).sum()))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name in LONG else name for name in SYSTEMS]
)
def test_copying_and_reversing_are_learned(name: str) -> None:
    changes, rate, updates = SYSTEMS[name]
    torch.manual_seed(1)
    model = build_model(config.ModelConfig(**SIZES | {"max_length": 16, "dropout": 0.0} | changes))
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98))
    for update in range(updates):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1, (update + 1) / 20) * (1 - update / updates)
        piece = batch(64, update)
        loss = translation_loss(model, piece)
        optimizer.zero_grad()
        (loss.smoothed / loss.tokens).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    test = batch(100, 10**6)
    result = written(model.eval(), test.source, test.source_lengths)
    expected = [row[1:-1].tolist() for row in (item[item != 0] for item in test.target)]
    assert sum(a == b for a, b in zip(result, expected, strict=True)) >= 0.95 * len(expected)


def written(model: torch.nn.Module, source: Tensor, lengths: Tensor) -> list[list[int]]:
    hypotheses = beam_search(ModelNextToken(model), source, lengths, SearchOptions(beam=1, max_length=8))
    return [list(result[0].ids) for result in hypotheses]


RESUMED = ["rnn-additive", "conv", "linformer", "linear", "act_halting"]


@pytest.mark.parametrize(
    "name", RESUMED + [pytest.param(name, marks=pytest.mark.long) for name in ("batch-norm", "experts")]
)
def test_killed_and_resumed_equals_never_interrupted(corpus: Path, tmp_path: Path, name: str) -> None:
    changes = [f"model.{key}={str(value).lower()}" for key, value in SYSTEMS[name][0].items()]
    if name in ("act_halting", "experts"):
        with pytest.raises(SettingError, match="does not work with"):
            open_(settings(corpus, tmp_path / "store", *changes), tmp_path / "refused")
        changes.append("train.rdrop=0")
    requested = settings(corpus, tmp_path / "store", *changes, "train.max_updates=5", "train.checkpoint_every=2")
    train(open_(requested, tmp_path / "whole"))
    run = open_(requested, tmp_path / "killed")
    run.loss_of = killing(run, 4, 2)  # type: ignore[method-assign]
    with pytest.raises(Killed):
        train(run)
    torch.manual_seed(12345)
    train(open_(requested, tmp_path / "killed", resume=True))
    for file in ("model.safetensors", "checkpoints/step-5/optimizer.safetensors"):
        actual, reference = load_file(tmp_path / "killed" / file), load_file(tmp_path / "whole" / file)
        assert actual.keys() == reference.keys()
        assert all(torch.equal(actual[key], reference[key]) for key in actual)
    assert folder.load_folder(tmp_path / "killed").model.config == run.config.model
