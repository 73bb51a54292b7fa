import numpy as np
import pytest

from shoal.kernels.cholesky import pivoted


def matrix(n, rank):
    return np.random.default_rng(n).normal(size=(n, rank))


@pytest.mark.parametrize(("n", "rank"), [(1, 1), (5, 2), (40, 13), (40, 40)])
def test_the_rank_is_found(n, rank):
    half = matrix(n, rank)
    lower = pivoted(half @ half.T, n, 1e-12).lower
    assert lower.shape == (rank, n)
    assert lower.T @ lower == pytest.approx(half @ half.T, abs=1e-9)


def test_what_is_left_is_as_little_as_was_asked_for():
    half = matrix(30, 30) * 2.0 ** -np.arange(30)
    gram = half @ half.T
    ranks = []
    for tolerance in (1e-2, 1e-4, 1e-8):
        lower = pivoted(gram, 30, tolerance).lower
        assert 0 <= np.trace(gram - lower.T @ lower) <= tolerance * np.trace(gram)
        ranks.append(len(lower))
    assert ranks == sorted(ranks)
    assert ranks[-1] < 30


def test_too_many():
    half = matrix(10, 6)
    assert pivoted(half @ half.T, 5, 1e-9) is None
    assert len(pivoted(half @ half.T, 6, 1e-9).lower) == 6
    assert len(pivoted(np.zeros((4, 4)), 2, 1e-9).lower) == 0


def test_some_rows_give_all_others():
    half = matrix(20, 6)
    found = pivoted(half @ half.T, 10, 1e-12)
    assert len(set(found.pivots.tolist())) == 6
    assert found.interpolation().T @ half[found.pivots] == pytest.approx(half, abs=1e-9)
