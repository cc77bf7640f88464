"""The engine's step of Adam against torch's."""

from dataclasses import replace

import pytest
import torch

from heedful.native.adam_step import adam_step_for
from heedful.native.engine import library
from heedful.ops.adamw import AdamTensors, adam_step

needs_engine = pytest.mark.skipif(library() is None, reason="there is no engine")
SHAPES = [(33, 7), (64,), (1,), (5, 3, 2), (19,)]  # none needs to fill the registers of a CPU


def new_tensors(seed: int = 0) -> AdamTensors:
    generator = torch.Generator().manual_seed(seed)
    weights = [torch.randn(shape, generator=generator) for shape in SHAPES]
    moments = [[torch.zeros_like(weight) for weight in weights] for _ in range(3)]
    return AdamTensors(weights, moments[0], moments[1], moments[2], [torch.zeros(()) for _ in weights])


@needs_engine
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("betas", [(0.9, 0.98), (0.3, 0.999)])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_it_equals_torch_within_rounding(
    decay: float, betas: tuple[float, float], threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    result, expected = new_tensors(), new_tensors()
    step = adam_step_for(result.weights)
    assert step is not adam_step
    for update, rate in enumerate((0.01, 0.02, 0.005), 1):
        for a, b in zip(result.gradients, expected.gradients, strict=True):
            b.copy_(a.normal_(generator=torch.Generator().manual_seed(update)))
        step(result, rate, betas, 1e-9, decay)
        adam_step(expected, rate, betas, 1e-9, decay)
    for kind in ("weights", "means", "squares", "updates"):
        torch.testing.assert_close(getattr(result, kind), getattr(expected, kind), rtol=1e-5, atol=1e-7)
    assert [float(updates) for updates in result.updates] == [3.0] * len(SHAPES)


@pytest.mark.parametrize("weight", [torch.zeros(3, dtype=torch.float64), torch.zeros(2, 3).t()])
def test_other_types_and_layouts_are_left_to_torch(weight: torch.Tensor) -> None:
    assert adam_step_for([torch.zeros(3), weight]) is adam_step


@needs_engine
def test_a_weight_without_a_gradient_is_refused() -> None:
    tensors = new_tensors()
    step = adam_step_for(tensors.weights)
    with pytest.raises(ValueError, match="each weight needs a gradient"):
        step(replace(tensors, gradients=tensors.gradients[:-1]), 0.01, (0.9, 0.98), 1e-9, 0.0)
    assert [float(updates) for updates in tensors.updates] == [0.0] * len(SHAPES)
