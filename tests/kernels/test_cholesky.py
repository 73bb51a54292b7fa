import numpy as np
import pytest

from shoal.kernels.cholesky import pivoted, pivoted_each, spanning
from shoal.kernels.products import products


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


@pytest.mark.parametrize(("width", "n", "rank"), [(1, 1, 1), (7, 12, 3), (30, 20, 11), (25, 40, 25)])
def test_vectors_that_span_all_others_without_all_products(width, n, rank):
    vectors = (matrix(width, rank) @ matrix(n, rank).T).astype(np.float32)
    gram = vectors.T.astype(np.float64) @ vectors
    found, expected = spanning(vectors, n, 1e-12), pivoted(gram, n, 1e-12)
    assert found.pivots.tolist() == expected.pivots.tolist()
    assert len(found.pivots) == rank
    assert found.lower == pytest.approx(expected.lower, rel=1e-6, abs=1e-6 * np.abs(gram).max() ** 0.5)
    assert vectors[:, found.pivots] @ found.interpolation() == pytest.approx(vectors, abs=1e-4)
    assert spanning(vectors, rank - 1, 1e-9) is None


def test_nothing_is_spanned_by_nothing():
    assert len(spanning(np.zeros((3, 4), np.float32), 2, 1e-9).lower) == 0


def test_several_matrices_are_decomposed_as_each_by_itself():
    """Of unequal ranks, one of them too high, and one of zeros."""
    draw = np.random.default_rng(3)
    ranks = (3, 7, 0, 2)
    matrices = np.array([draw.normal(size=(8, r)) @ draw.normal(size=(r, 13)) for r in ranks], np.float32)
    lower, found = pivoted_each(matrices, 5, 1e-9)
    assert found.tolist() == [3, -1, 0, 2]
    for matrix, own, rank in zip(matrices, lower, found, strict=True):
        alone = pivoted(products(matrix), 5, 1e-9)
        assert (rank < 0) == (alone is None)
        assert not own[max(rank, 0) :].any()
        assert alone is None or np.array_equal(own[:rank], alone.lower)
