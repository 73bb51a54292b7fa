import numpy as np
import pytest

from shoal.kernels.eigen import decompose, eigen


def found(grams):
    values, vectors = np.empty(grams.shape[:2]), np.empty(grams.shape)
    eigen(grams, values, vectors)
    return values, vectors


@pytest.mark.parametrize("side", [1, 2, 3, 10, 31, 63])
@pytest.mark.parametrize("weakest", [0, -6, -14])
def test_eigenvalues_and_eigenvectors(side, weakest):
    half = (
        np.random.default_rng(side).normal(size=(3, side, side + 2)) * np.logspace(0, weakest, side)[:, None]
    )
    grams = half @ half.swapaxes(1, 2)
    values, vectors = found(grams)
    largest = values.max()
    assert values == pytest.approx(np.linalg.eigvalsh(grams), rel=1e-12, abs=1e-14 * largest)
    for gram, value, vector in zip(grams, values, vectors, strict=True):
        assert vector.T @ vector == pytest.approx(np.eye(side), abs=1e-13)
        assert (vector * value) @ vector.T == pytest.approx(gram, abs=1e-13 * largest)


def test_diagonal_equal_and_smaller_matrices():
    grams = np.zeros((4, 5, 5))
    grams[0] = np.diag([3.0, 1.0, 2.0, 0.0, 5.0])
    grams[1, :3, :3] = 2.0  # of rank 1, with zeros behind
    grams[2] = np.eye(5)
    values, vectors = found(grams)
    assert values == pytest.approx(np.array([[0, 1, 2, 3, 5], [0, 0, 0, 0, 6], [1] * 5, [0] * 5]), abs=1e-15)
    assert np.abs(vectors[0]).argmax(0).tolist() == [3, 1, 2, 0, 4]
    assert np.abs(vectors[1, :, 4]) == pytest.approx([3**-0.5] * 3 + [0, 0])
    assert not vectors[1, :, :2].any()
    assert np.isfinite(vectors).all()


def decomposed(matrix, rank):
    rows, columns = matrix.shape
    near, values, far = (np.empty(shape, np.float32) for shape in ((rows, rank), rank, (columns, rank)))
    assert decompose(matrix, near, values, far)
    return near, values, far


@pytest.mark.parametrize("scale", [1e-28, 1.0, 1e28])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 7), (2, 2), (10, 200), (16, 16)])
def test_singular_values_and_vectors(rows, columns, scale):
    matrix = (scale * np.random.default_rng(rows).normal(size=(rows, columns))).astype(np.float32)
    u, s, v = np.linalg.svd(matrix.astype(np.float64), full_matrices=False)
    for rank in {1, (rows + 1) // 2, rows}:
        near, values, far = decomposed(matrix, rank)
        assert values == pytest.approx(s[:rank], rel=1e-6)
        for side in (near, far):
            assert side.T @ side == pytest.approx(np.eye(rank), abs=1e-5)
        nearest = (u[:, :rank] * s[:rank]) @ v[:rank]
        assert (near * values) @ far.T == pytest.approx(nearest, abs=1e-5 * s[0])


def test_equal_values_and_none():
    assert decomposed(np.eye(5, 8, dtype=np.float32), 5)[1].tolist() == [1.0] * 5
    one = np.zeros((3, 4), np.float32)
    one[1, 2] = 3.0
    _, values, far = decomposed(one, 2)
    assert values.tolist() == [3.0, 0.0]
    assert not far[:, 1].any()


def test_weak_directions_are_as_exact_as_strong_ones():
    draw = np.random.default_rng(7)
    left, right = (np.linalg.qr(draw.normal(size=(n, 6)))[0] for n in (8, 30))
    exact = np.logspace(0, -5, 6)
    near, values, _ = decomposed(((left * exact) @ right.T).astype(np.float32), 6)
    assert values == pytest.approx(exact, rel=1e-2)
    assert np.abs(near.T @ left) == pytest.approx(np.eye(6), abs=1e-2)


@pytest.mark.parametrize("scale", [0.0, 1e-36, 1e36, np.inf, np.nan])
def test_what_has_no_squares_is_left_as_it_is(scale):
    with np.errstate(over="ignore"):
        matrix = np.float32(scale) * np.ones((4, 6), np.float32)
    near, values, far = (np.full(shape, 7, np.float32) for shape in ((4, 2), 2, (6, 2)))
    assert not decompose(matrix, near, values, far)
    assert (near == 7).all()
    assert (values == 7).all()


def test_sides_that_do_not_fit_are_refused():
    matrix, gram = np.ones((3, 4), np.float32), np.zeros((3, 3))
    near, values, far = (np.empty(shape, np.float32) for shape in ((3, 2), 2, (4, 2)))
    with pytest.raises(ValueError, match="fit"):
        eigen(gram[None], np.empty((1, 2)), np.empty((1, 3, 3)))
    for wrong in (
        (matrix, near[:2], values, far),
        (matrix, near, values, far[:3]),
        (matrix, np.empty((3, 4), np.float32), np.empty(4, np.float32), np.empty((4, 4), np.float32)),
    ):
        with pytest.raises(ValueError, match="fit"):
            decompose(*wrong)
