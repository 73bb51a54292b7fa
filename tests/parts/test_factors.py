import numpy as np
import pytest
import torch
from toy import KEY

from shoal.parts.factors import Factors, as_matrix, factored, rank_of, spanned, spectrum

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


def few(shape, rank, noise=0.0, name="few"):
    """A large matrix with few directions, one ten thousand times as strong as another."""
    draw = KEY.fold(name).numpy()
    strengths = np.logspace(0, -4, rank)
    made = (draw.normal(size=(shape[0], rank)) * strengths) @ draw.normal(size=(rank, shape[1]))
    return torch.from_numpy(made + noise * draw.normal(size=shape)).float()


@pytest.mark.parametrize("shape", [(70, 150), (150, 70), (80, 80)])
@pytest.mark.parametrize("rank", [5, 20, 40])
def test_large_matrices_with_few_directions(shape, rank):
    matrix = few(shape, 20, 1e-8)
    exact = torch.linalg.svdvals(matrix.double())
    factors = factored(matrix, rank)
    assert [part.shape for part in factors] == [(shape[0], rank), (rank,), (shape[1], rank)]
    assert all(part.is_contiguous() and part.dtype == torch.float32 for part in factors)
    kept = min(rank, 20)
    torch.testing.assert_close(
        factors.s[:kept].double(), exact[:kept], rtol=1e-4, atol=1e-6 * float(exact[0])
    )
    lost = float((matrix - factors.dense()).double().norm())
    assert lost == pytest.approx(float(exact[rank:].norm()), abs=2.0**-15 * float(exact.norm()))
    strong = factors.s > 1e-3 * factors.s[0]
    for side in (factors.u[:, strong], factors.v[:, strong]):
        torch.testing.assert_close(side.T @ side, torch.eye(int(strong.sum())), rtol=0, atol=1e-3)
    assert factors.are_singular()


def test_large_matrices_with_many_directions():
    matrix = normal((90, 130))
    exact = torch.linalg.svdvals(matrix.double())
    factors = factored(matrix, 30)
    lost = (matrix - factors.dense()).double().square().sum()
    assert float(lost) == pytest.approx(float(exact[30:].square().sum()), rel=1e-5)
    assert factors.are_singular()


@pytest.mark.parametrize("scale", [0.0, 1e-36, 1e36])
def test_no_size_of_a_large_matrix_is_too_small_or_too_large(scale):
    matrix = scale * few((70, 90), 5)
    torch.testing.assert_close(factored(matrix, 8).dense(), matrix, rtol=1e-2, atol=1e-3 * scale)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_large_matrix_that_is_not_finite_stays_so(bad):
    matrix = few((70, 90), 5)
    matrix[3, 4] = bad
    assert not bool(factored(matrix, 8).dense().isfinite().all())


def test_only_singular_vectors_and_values_are_such():
    u, s, v = factored(few((70, 90), 12), 16)
    assert Factors(u, s, v).are_singular()
    skew = v.clone()
    skew[:, 1] += 0.1 * v[:, 0]
    longer = u.clone()
    longer[:, 2] *= 1.1
    zeros = torch.zeros_like(s)
    weak, stretched = s.clone(), v.clone()  # a small value must not hide what its vectors are
    weak[11], stretched[:, 11] = 1e-3 * s[0], 3 * v[:, 11]
    assert Factors(u, weak, v).are_singular()
    wrong = [
        (u, weak, stretched),
        (u, s, skew),
        (longer, s, v),
        (u, 2 * s, 0.5 * v),
        (u, -s, -v),
        (u, zeros, v),
    ]
    wrong += [(u[:, [1, 0]], s[[1, 0]], v[:, [1, 0]]), (u, s * float("nan"), v)]
    assert not any(Factors(*each).are_singular() for each in wrong)


@pytest.mark.parametrize("shape", [(100, 150), (150, 100), (200, 784)])
def test_a_matrix_that_some_of_its_rows_span_needs_no_decomposition(shape):
    matrix = few(shape, 20)
    u, s, v = factors = spanned(matrix, 30)
    assert [part.shape for part in factors] == [(shape[0], 20), (20,), (shape[1], 20)]
    assert all(part.is_contiguous() and part.dtype == torch.float32 for part in factors)
    assert s.tolist() == [1.0] * 20
    lines, thin = (matrix, v) if shape[0] < shape[1] else (matrix.T, u)
    assert all(any(torch.equal(row, line) for line in lines) for row in thin.T[:20])
    torch.testing.assert_close(factors.dense(), matrix, rtol=0, atol=2e-5 * float(matrix.abs().max()))


def test_what_few_rows_do_not_span_is_decomposed():
    assert spanned(few((100, 150), 20), 19) is None  # it has to be cut
    assert spanned(normal((100, 150)), 90) is None  # it has many directions
    assert spanned(few((40, 150), 3), 5) is None  # it is small
    assert spanned(few((100, 150), 20).double(), 30) is None
    for strange in (0.0, 1e-36, float("nan"), float("inf")):
        assert spanned(strange * few((100, 150), 20), 30) is None


def test_columns_that_a_sketch_confuses_are_noticed():
    """In a sketch of 96 columns the 5th and the 101st are one: two rows look like one."""
    matrix = torch.zeros(100, 300)
    matrix[0, 5], matrix[1, 101] = 1.0, 1.0
    assert spanned(matrix, 10) is None
