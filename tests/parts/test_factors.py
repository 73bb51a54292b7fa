import pytest
import torch
from toy import KEY

from shoal.core.tree import nbytes, row, stack
from shoal.core.types import Weights
from shoal.parts.factors import Factors, as_matrix, compressed, factored, rank_of, restored, spectrum

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


def update(name="u"):
    params = {
        "wide": normal((20, 50), name),
        "square": normal((10, 10), name),
        "conv": normal((8, 4, 3, 3), name),
        "bias": normal((20,), name),
    }
    return Weights(params, {"mean": normal((3,), name)})


def test_the_shortest_form_travels():
    given = update()
    sent = compressed(given, 0.5, stacked=False)
    assert isinstance(sent.params["wide"], Factors)  # 10 (20 + 50 + 1) numbers for 1000
    assert isinstance(sent.params["conv"], Factors)  # 4 (8 + 36 + 1) for 288
    assert isinstance(sent.params["square"], torch.Tensor)  # 5 (10 + 10 + 1) would be more than 100
    assert sum(part.numel() for part in sent.params["wide"]) == 710
    assert sent.params["bias"] is given.params["bias"]
    assert sent.buffers is given.buffers
    assert nbytes(sent) < nbytes(given)
    back = restored(sent, given.params)
    assert {name: value.shape for name, value in back.params.items()} == {
        name: value.shape for name, value in given.params.items()
    }
    for name in ("wide", "square", "conv"):
        matrix = as_matrix(back.params[name])
        expected = factored(as_matrix(given.params[name]), rank_of(0.5, min(matrix.shape))).dense()
        torch.testing.assert_close(matrix, expected)
        assert int((torch.linalg.svdvals(matrix) > 1e-3).sum()) == min(matrix.shape) // 2


def test_the_full_rank_is_the_update_itself():
    given = update()
    sent = compressed(given, 1.0, stacked=False)
    assert all(sent.params[name] is value for name, value in given.params.items())


def test_a_block_has_the_bits_of_its_clients():
    singles = [update("a"), update("b"), update("c")]
    block = compressed(stack(singles), 0.5, stacked=True)
    for i, single in enumerate(singles):
        alone, inside = compressed(single, 0.5, stacked=False), row(block, i)
        for name, value in alone.params.items():
            pairs = (
                zip(value, inside.params[name], strict=True)
                if isinstance(value, Factors)
                else [(value, inside.params[name])]
            )
            assert all(torch.equal(a, b) for a, b in pairs)
