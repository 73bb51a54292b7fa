import pytest
import torch
from toy import KEY

from shoal.parts.factors import as_matrix, factored, rank_of, spectrum

SHAPES = [(6, 9), (9, 6), (7, 7), (1, 5), (8, 3, 2, 2)]


def normal(shape, name="m"):
    return torch.from_numpy(KEY.fold(name).numpy().normal(size=shape)).float()


@pytest.mark.parametrize("shape", SHAPES)
def test_the_nearest_matrix_of_a_rank(shape):
    """Eckart and Young: what is lost are the squares of the singular values that were left out."""
    matrix = as_matrix(normal(shape))
    exact = torch.linalg.svdvals(matrix.double())
    for rank in range(1, min(matrix.shape) + 1):
        factors = factored(matrix, rank)
        assert [part.shape for part in factors] == [(matrix.shape[0], rank), (rank,), (matrix.shape[1], rank)]
        torch.testing.assert_close(factors.s.double(), exact[:rank], rtol=1e-4, atol=1e-4)
        lost = (matrix - factors.dense()).double().square().sum()
        assert float(lost) == pytest.approx(float(exact[rank:].square().sum()), abs=1e-3)
        eye = torch.eye(rank)
        torch.testing.assert_close(factors.u.T @ factors.u, eye, rtol=0, atol=1e-3)
        torch.testing.assert_close(factors.v.T @ factors.v, eye, rtol=0, atol=1e-3)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_no_size_is_too_small_or_too_large(scale):
    matrix = normal((5, 8))
    vectors, values = spectrum(scale * matrix)
    assert bool(vectors.isfinite().all())
    torch.testing.assert_close(values, scale * torch.linalg.svdvals(matrix), rtol=1e-3, atol=0)
    torch.testing.assert_close(
        factored(scale * matrix, 5).dense(), scale * matrix, rtol=1e-2, atol=1e-3 * scale
    )


def test_nothing_and_little_are_matrices_too():
    nothing = factored(torch.zeros(4, 6), 2)
    assert torch.equal(nothing.dense(), torch.zeros(4, 6))
    thin = torch.outer(torch.arange(1.0, 5), torch.arange(1.0, 7))  # of rank 1
    torch.testing.assert_close(factored(thin, 3).dense(), thin, rtol=1e-4, atol=1e-4)


def test_ranks_are_shares_rounded_up():
    assert [rank_of(share, 10) for share in (0.0, 0.01, 0.5, 0.51, 1.0)] == [1, 1, 5, 6, 10]
    assert [rank_of(i / 16, 16) for i in range(1, 17)] == list(range(1, 17))
