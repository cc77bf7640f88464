"""Newton-Schulz by the compiled engine, compared with torch in float32 and float64."""

import pytest
import torch

from heedful.native.engine import library
from heedful.native.muon_step import newton_schulz_native
from heedful.ops.newton_schulz import newton_schulz

pytestmark = pytest.mark.skipif(library() is None, reason="there is no compiled engine")

SHAPES = [(1, 1, 1), (1, 1, 7), (5, 7, 7), (3, 16, 40), (2, 40, 16), (4, 33, 70), (9, 128, 128), (2, 100, 520)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("threads", [1, 2])
def test_results_are_those_of_torch(shape: tuple[int, int, int], threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    torch.manual_seed(1)
    matrices = torch.randn(shape)
    original = matrices.clone()
    torch.testing.assert_close(newton_schulz_native(matrices, library()), newton_schulz(matrices), rtol=0, atol=1e-4)
    assert torch.equal(matrices, original)
    transposed = matrices.mT
    torch.testing.assert_close(
        newton_schulz_native(transposed, library()), newton_schulz(transposed), rtol=0, atol=1e-4
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_bfloat16_is_right_to_its_precision(shape: tuple[int, int, int]) -> None:
    torch.manual_seed(1)
    skewed = torch.randn(shape) @ torch.diag(torch.logspace(0, -4, shape[2]))  # singular values from 1 to 1e-4
    for matrices in (torch.randn(shape), skewed, skewed.mT):
        exact = newton_schulz(matrices.double()).float()
        apart = (newton_schulz_native(matrices, library(), "bfloat16") - exact).norm() / exact.norm()
        assert apart < 0.05
        rounded = (newton_schulz(matrices.bfloat16()).float() - exact).norm() / exact.norm()
        assert apart < 3 * rounded + 0.01


@pytest.mark.parametrize("rank", [1, 5])
def test_rank_deficient_matrices_stay_rank_deficient(rank: int) -> None:
    torch.manual_seed(1)
    matrix = (torch.randn(1, 48, rank) @ torch.randn(1, rank, 80)) * 1e-4
    exact = newton_schulz(matrix.double()).float()
    torch.testing.assert_close(newton_schulz_native(matrix, library()), exact, rtol=0, atol=1e-3)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_threads_change_nothing(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    matrices, results = torch.randn(5, 48, 64), []
    for threads in (1, 2, 8):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        results.append(newton_schulz_native(matrices, library(), precision))
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_matrix_of_zeros_stays(precision: str) -> None:
    assert not newton_schulz_native(torch.zeros(2, 3, 4), library(), precision).any()
