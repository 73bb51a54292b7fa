import numpy as np
import pytest

from shoal.kernels.sketch import add_up, multiply


def test_a_sketch_by_hand():
    """Rows 0 and 2 are added with signs 1 and -1, and row 1 stays; then columns likewise."""
    matrix = np.arange(1, 10, dtype=np.float32).reshape(3, 3)
    signs = np.array([1, 1, -1], np.float32)
    out = np.empty((2, 2), np.float32)
    add_up(matrix[None], signs, signs, out[None])
    assert out.tolist() == [[(1 - 7) - (3 - 9), 2 - 8], [4 - 6, 5]]


def test_a_sketch_of_the_same_sides_has_only_its_signs():
    matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
    out = np.empty_like(matrix)
    add_up(matrix[None], np.array([1, -1], np.float32), np.ones(3, np.float32), out[None])
    assert out.tolist() == [[0, 1, 2], [-3, -4, -5]]


@pytest.mark.parametrize("width", [1, 63, 64, 65, 784])
def test_products_with_vectors(width):
    draw = np.random.default_rng(width)
    matrix, vectors = (draw.normal(size=(n, width)).astype(np.float32) for n in (5, 2))
    out = np.empty((2, 5), np.float32)
    multiply(matrix, vectors, out)
    assert out == pytest.approx(vectors.astype(np.float64) @ matrix.T, rel=1e-5, abs=1e-5)


def test_sides_that_do_not_fit_are_refused():
    matrix, ones = np.zeros((3, 4), np.float32), np.ones(3, np.float32)
    with pytest.raises(ValueError, match="no larger"):
        add_up(matrix[None], ones, ones, np.empty((1, 2, 2), np.float32))
    with pytest.raises(ValueError, match="fit"):
        multiply(matrix, np.ones((2, 3), np.float32), np.empty((2, 3), np.float32))
