"""What computes the loss of a run, and what the log says about it."""

from typing import Any

import pytest
import torch

from heedful.config import RunConfig, load_config
from heedful.model.transformer import build_model
from heedful.native.engine import library
from heedful.training.backend import LossBackend
from heedful.training.tasks.classification import ClassificationTask, RegressionTask
from heedful.training.tasks.language_model import LanguageModelTask

SIZES = ["model.vocab_size=50", "model.d_model=64", "model.d_ff=64", "model.n_heads=2", "model.decoder_layers=1"]
GPT = [*SIZES, "model.family=decoder"]


def described(words: list[str], task: Any = LanguageModelTask) -> str:
    config: RunConfig = load_config(None, words)
    return LossBackend(build_model(config.model), task.__new__(task), config, torch.device("cpu")).describe()


@pytest.mark.skipif(library() is None, reason="there is no compiled engine")
def test_the_native_engine_computes_what_it_knows() -> None:
    assert described(GPT).endswith("by the native engine")


@pytest.mark.skipif(library() is None, reason="there is no compiled engine")
@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("train.backend=torch", "train.backend is torch"),
        ("model.attention=window", "it does not know model.attention=window"),
        ("model.d_ff=70", "model.d_ff is 70 and must be a multiple of"),
    ],
)
def test_the_log_says_why_pytorch_computes(setting: str, reason: str) -> None:
    assert f"by PyTorch (not by the native engine: {reason}" in described([*GPT, setting])


def test_a_task_with_another_loss_is_left_to_pytorch() -> None:
    class Other(ClassificationTask):
        def loss(self, model: Any, micro_batch: Any, smoothing: float = 0.0, sampled_softmax: int = 0) -> Any:
            raise NotImplementedError

    class Same(ClassificationTask):
        pass

    assert Same.native_loss and not Other.native_loss
    assert "(not by the native engine: it does not compute the loss of class Other)" in described(GPT, Other)
    regression = described(GPT, RegressionTask)
    assert "(not by the native engine: it does not compute the loss of task=regression)" in regression
