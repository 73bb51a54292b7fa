import numpy as np
import pytest

from shoal.kernels.cholesky import interpolate, pivoted, pivoted_rows, spanning


def matrix(n, rank):
    return np.random.default_rng(n).normal(size=(n, rank))


def decomposed(kernel, of, most, tolerance):
    """L and the pivots by one of the two kernels; None if there is no room."""
    out, pivots = np.empty((most, of.shape[1])), np.empty(most, np.int64)
    rank = kernel(of, tolerance, out, pivots)
    return None if rank < 0 else (out[:rank], pivots[:rank])


def interpolated(lower, pivots):
    out = np.empty_like(lower)
    interpolate(lower, pivots, out)
    return out


@pytest.mark.parametrize(("n", "rank"), [(1, 1), (5, 2), (40, 13), (40, 40)])
def test_the_rank_is_found(n, rank):
    half = matrix(n, rank)
    lower = pivoted(half @ half.T, n, 1e-12)
    assert lower.shape == (rank, n)
    assert lower.T @ lower == pytest.approx(half @ half.T, abs=1e-9)


def test_what_is_left_is_as_little_as_was_asked_for():
    half = matrix(30, 30) * 2.0 ** -np.arange(30)
    gram = half @ half.T
    ranks = []
    for tolerance in (1e-2, 1e-4, 1e-8):
        lower = pivoted(gram, 30, tolerance)
        assert 0 <= np.trace(gram - lower.T @ lower) <= tolerance * np.trace(gram)
        ranks.append(len(lower))
    assert ranks == sorted(ranks)
    assert ranks[-1] < 30


def test_too_many():
    half = matrix(10, 6)
    assert pivoted(half @ half.T, 5, 1e-9) is None
    assert len(pivoted(half @ half.T, 6, 1e-9)) == 6
    assert len(pivoted(np.zeros((4, 4)), 2, 1e-9)) == 0


def test_some_rows_give_all_others():
    half = matrix(20, 6)
    lower, pivots = decomposed(pivoted_rows, half @ half.T, 10, 1e-12)
    assert len(set(pivots.tolist())) == 6
    assert interpolated(lower, pivots).T @ half[pivots] == pytest.approx(half, abs=1e-9)


@pytest.mark.parametrize(("width", "n", "rank"), [(1, 1, 1), (7, 12, 3), (30, 20, 11), (25, 40, 25)])
def test_vectors_that_span_all_others_without_all_products(width, n, rank):
    vectors = (matrix(width, rank) @ matrix(n, rank).T).astype(np.float32)
    gram = vectors.T.astype(np.float64) @ vectors
    lower, pivots = decomposed(spanning, vectors, n, 1e-12)
    expected, same = decomposed(pivoted_rows, gram, n, 1e-12)
    assert pivots.tolist() == same.tolist()
    assert len(pivots) == rank
    assert lower == pytest.approx(expected, rel=1e-6, abs=1e-6 * np.abs(gram).max() ** 0.5)
    assert vectors[:, pivots] @ interpolated(lower, pivots) == pytest.approx(vectors, abs=1e-4)
    assert decomposed(spanning, vectors, rank - 1, 1e-9) is None


def test_nothing_is_spanned_by_nothing():
    assert len(decomposed(spanning, np.zeros((3, 4), np.float32), 2, 1e-9)[1]) == 0
