import numpy as np
import pytest
from numba import float32, float64, types

from shoal.kernels.jit import given, kernel
from shoal.kernels.row_sums import subtract_rows


def made(total, factors, rows):
    @kernel(types.void(total[::1], given(factors, 1), given(rows, 2)))
    def called(total, factors, rows):
        subtract_rows(total, factors, rows)

    return called


KINDS = {
    "doubles": (float64, float64, float64),
    "floats": (float32, float32, float32),
    "floats into doubles": (float64, float64, float32),
    "by floats": (float64, float32, float64),
}
KERNELS = {name: made(*kinds) for name, kinds in KINDS.items()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [0, 1, 5])
@pytest.mark.parametrize("width", [0, 1, 7, 8, 9, 16, 33, 64, 127, 200])
def test_rows_are_subtracted_in_order_each_product_rounded_once(kind, count, width):
    """Products of numbers of few bits are exact, so NumPy's are rounded once, too."""
    draw, (wide, of_factors, of_rows) = np.random.default_rng(width), (str(each) for each in KINDS[kind])
    factors, rows = draw.integers(-99, 99, count), draw.integers(-99, 99, (count + 1, width))
    total = draw.normal(size=width + 4).astype(wide)
    expected = total.copy()
    for factor, row in zip(factors, rows):
        expected[2 : width + 2] -= (factor * row).astype(wide)
    KERNELS[kind](total[2 : width + 2], factors.astype(of_factors), rows.astype(of_rows))
    assert np.array_equal(total, expected)  # and nothing beside it was written to


def test_a_product_is_not_rounded_before_it_is_subtracted():
    factor = np.array([1 + 2.0**-30])
    total = factor**2
    KERNELS["doubles"](total, factor, factor[None])
    assert total[0] == -(2.0**-60)


def test_nan_and_infinity_stay():
    total, rows = np.zeros(9), np.array([[np.inf] * 9, [np.nan] + [1.0] * 8])
    KERNELS["doubles"](total, np.ones(2), rows)
    assert np.isnan(total[0])
    assert (total[1:] == -np.inf).all()
