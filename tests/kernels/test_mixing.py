import numpy as np
import pytest

from shoal.kernels.mixing import Vectors, mix_around, products_around


def vectors(n, width, seed=0):
    rng = np.random.default_rng(seed)
    origin = rng.normal(size=width).astype(np.float32)
    return origin, [(origin + 0.01 * rng.normal(size=width)).astype(np.float32) for _ in range(n)]


def mixed(origin, shares, given, *cuts):
    out = [np.full(len(origin), np.nan, np.float32) for _ in shares]
    for first, last in zip((0, *cuts), (*cuts, len(origin)), strict=True):
        mix_around(origin, shares, Vectors.of(given), Vectors.of(out), first, last)
    return np.stack(out)


@pytest.mark.parametrize("width", [1, 15, 16, 17, 511, 4097, 9000])
@pytest.mark.parametrize(("left", "right"), [(1, 1), (2, 3), (3, 6), (10, 9)])
def test_products_of_differences(left, right, width):
    origin, given = vectors(left + right, width)
    apart = np.stack(given).astype(np.float64) - origin
    found = products_around(origin, Vectors.of(given[:left]), Vectors.of(given[left:]))
    size = np.linalg.norm(apart, axis=1)
    assert np.abs(found - apart[:left] @ apart[left:].T).max() <= 3e-7 * np.outer(size, size).max()


def test_the_bits_of_a_product_do_not_depend_on_what_is_multiplied_beside():
    origin, given = vectors(9, 5000)
    rows = Vectors.of(given)
    whole = products_around(origin, rows, rows)
    assert np.array_equal(whole, whole.T)
    assert np.array_equal(products_around(origin, rows.some([4, 1, 7]), rows), whole[[4, 1, 7]])
    assert np.array_equal(products_around(origin, rows, rows.some(slice(2, 5))), whole[:, 2:5])


@pytest.mark.parametrize("width", [1, 16, 100, 4095, 5000])
@pytest.mark.parametrize(("n", "count"), [(1, 1), (3, 2), (10, 5), (23, 7)])
def test_mixtures_around_an_origin(n, count, width):
    origin, given = vectors(n, width)
    shares = np.random.default_rng(1).random((count, n))
    expected = origin + shares @ (np.stack(given).astype(np.float64) - origin)
    assert mixed(origin, shares, given) == pytest.approx(expected, rel=2e-7, abs=1e-7)


def test_the_bits_of_a_mixture_do_not_depend_on_where_columns_are_cut():
    origin, given = vectors(12, 9001)
    shares = np.random.default_rng(1).random((6, 12))
    whole = mixed(origin, shares, given)
    assert np.array_equal(mixed(origin, shares, given, 5, 4100), whole)
    assert np.array_equal(mixed(origin, shares[3:], given), whole[3:])


def test_what_is_not_finite_stays_so():
    origin, given = vectors(3, 40)
    given[1][7] = np.inf
    found = products_around(origin, Vectors.of(given), Vectors.of(given))
    assert np.isfinite(found[np.ix_([0, 2], [0, 2])]).all()
    assert not np.isfinite(found[1]).any()
    assert not np.isfinite(mixed(origin, np.ones((2, 3)), given)[:, 7]).any()


def test_what_does_not_fit_is_refused():
    origin, given = vectors(2, 8)
    rows = Vectors.of(given)
    with pytest.raises(ValueError, match="among vectors of 8 float32"):
        Vectors.of([given[0], given[1][:4]])
    with pytest.raises(ValueError, match="around an origin of 4"):
        products_around(origin[:4], rows, rows)
    with pytest.raises(ValueError, match="shares of 2 vectors"):
        mix_around(origin, np.ones((2, 3)), rows, rows, 0, 8)
