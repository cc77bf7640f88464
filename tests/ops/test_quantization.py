"""Matrices of 8 bits against NumPy in loops, and against themselves."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.ops.quantization import INT8_LIMIT, dequantize, quantize


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (40, 33), (5, 4, 3)])
def test_int8_values_and_scales_are_those_of_a_loop(shape: tuple[int, ...]) -> None:
    sizes = np.logspace(-9, 6, shape[0]).reshape(-1, *[1] * (len(shape) - 1))
    weight = (np.random.default_rng(1).standard_normal(shape) * sizes).astype(np.float32)
    whole, scale = quantize(weight)
    assert whole.dtype == np.int8 and whole.shape == weight.shape and scale.shape == shape[:1]
    for row, result, step in zip(weight, whole, scale, strict=True):
        mantissa, exponent = np.frexp(np.abs(row).max() / np.float32(127))
        assert step == np.ldexp(np.floor(mantissa * 2**16), exponent - 16)
        np.testing.assert_array_equal(result, np.rint(row * (1 / step)))
        assert np.abs(result).max() == 127
    np.testing.assert_allclose(dequantize(whole, scale), weight, atol=float(scale.max()) * 0.501)


numbers = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=1, max_size=5))
def test_dequantized_weights_are_quantized_to_the_same_values(rows: list[list[float]]) -> None:
    whole, scale = quantize(np.array(rows, np.float32))
    assert int(whole.min()) >= -INT8_LIMIT and int(whole.max()) <= INT8_LIMIT
    again = dequantize(whole, scale)
    assert np.isfinite(again).all()
    np.testing.assert_array_equal(quantize(again)[0], whole)
    np.testing.assert_array_equal(dequantize(*quantize(again)), again)


def test_rows_of_zeros_stay_zero() -> None:
    whole, scale = quantize(np.array([[0.0, 0.0], [1e-38, -1e-38], [2.0, -1.0]], np.float32))
    assert whole.tolist() == [[0, 0], [0, 0], [127, -64]]  # 63.5 is rounded to even
    np.testing.assert_allclose(dequantize(whole, scale), [[0, 0], [0, 0], [2, -128 / 127]], rtol=2**-15)
