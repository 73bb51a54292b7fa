import numpy as np
import pytest

from shoal.kernels.polar_factors import turns

ROUNDING, FAINT = 2.0**-30, 1e-3


def turned(matrices, most=100, largest=None, faint=FAINT):
    out = np.full(matrices.shape, 7, np.float32)
    ranks = turns(matrices, most, largest or matrices.shape[1], ROUNDING, faint, out)
    return out, ranks.tolist()


def with_values(rows, columns, values, name=0):
    """A matrix with these singular values, and its vectors."""
    draw = np.random.default_rng(name)
    u, v = (np.linalg.qr(draw.normal(size=(n, len(values))))[0] for n in (rows, columns))
    return ((u * values) @ v.T).astype(np.float32), u, v


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 9), (7, 7), (10, 96), (96, 96), (33, 150)])
def test_all_directions_count_alike(rows, columns, scale):
    matrix, u, v = with_values(rows, columns, scale * np.logspace(0, -2, rows))
    (found,), (rank,) = turned(matrix[None])
    assert rank == rows
    assert found == pytest.approx(u @ v.T, abs=2e-4)


def test_faint_directions_and_more_than_are_wanted_are_left_out():
    matrix, u, v = with_values(20, 30, [5.0, 4.0, 3.0, 1e-2, 1e-3])
    assert turned(matrix[None])[0][0] == pytest.approx(u[:, :4] @ v[:, :4].T, abs=1e-3)
    assert turned(matrix[None], faint=1e-2)[0][0] == pytest.approx(u[:, :3] @ v[:, :3].T, abs=1e-4)
    assert turned(matrix[None], most=2)[0][0] == pytest.approx(u[:, :2] @ v[:, :2].T, abs=1e-4)


def test_each_matrix_by_itself():
    """Of unequal ranks, one of them too high, and one of zeros."""
    draw, ranks = np.random.default_rng(3), (3, 7, 0, 2)
    matrices = np.array([draw.normal(size=(8, r)) @ draw.normal(size=(r, 13)) for r in ranks], np.float32)
    found, seen = turned(matrices, largest=5)
    assert seen == [3, -1, 0, 2]
    assert (found[1] == 7).all()
    assert not found[2].any()
    for k in (0, 3):
        assert np.array_equal(found[k], turned(matrices[k : k + 1], largest=5)[0][0])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_left_to_others(bad):
    matrix = np.ones((3, 4), np.float32)
    matrix[1, 2] = bad
    assert turned(matrix[None])[1] == [-1]


def test_sides_that_do_not_fit_are_refused():
    matrices = np.ones((2, 4, 3), np.float32)
    with pytest.raises(ValueError, match="no more rows than columns"):
        turned(matrices)
    with pytest.raises(ValueError, match="as much room"):
        turns(matrices.swapaxes(1, 2).copy(), 1, 3, ROUNDING, FAINT, np.empty((2, 4, 3), np.float32))
