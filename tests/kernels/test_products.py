import numpy as np
import pytest

from shoal.kernels.products import mixtures, products, products_between


def rows(n, width, seed=0):
    return np.random.default_rng(seed).normal(size=(n, width)).astype(np.float32)


def in_lanes(a, b):
    """As the kernel sums: four lanes, each in order, then these."""
    exact = np.zeros(-(-len(a) // 4) * 4)
    exact[: len(a)] = a.astype(np.float64) * b.astype(np.float64)
    lanes = np.cumsum(exact.reshape(-1, 4), 0)[-1]
    return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3])


@pytest.mark.parametrize("width", [1, 3, 4, 5, 255, 256, 257, 1000])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 7])
def test_every_product_has_one_order_of_summation(n, width):
    given = rows(n, width)
    found = products(given)
    assert found.tolist() == [[in_lanes(a, b) for b in given] for a in given]
    assert found == pytest.approx(given.astype(np.float64) @ given.astype(np.float64).T, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("width", [5, 300])
def test_the_bits_do_not_depend_on_what_is_multiplied_beside(width):
    given, apart = rows(8, width), [row.copy() for row in rows(8, width)]
    whole = products(given)
    assert np.array_equal(products(apart), whole)
    assert np.array_equal(products(given[2:5], given), whole[2:5])
    assert np.array_equal(products(apart[6:], given[:7]), whole[6:, :7])


def test_what_is_not_finite_stays_so():
    given = rows(3, 40)
    given[1, 7] = np.inf
    found = products(given)
    assert np.isfinite(found[np.ix_([0, 2], [0, 2])]).all()
    assert not np.isfinite(found[1]).any()
    given[1, 7] = np.nan
    assert np.isnan(products(given)[1]).all()


def test_nothing_is_multiplied_with_nothing():
    assert products(np.zeros((0, 5), np.float32)).shape == (0, 0)
    assert products(np.zeros((2, 0), np.float32)).tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize(
    "wrong",
    [
        [np.zeros(4, np.float32), np.zeros(5, np.float32)],
        [np.zeros(4)],
        [np.zeros(8, np.float32)[::2]],
        np.zeros((2, 4)),
        np.zeros((4, 4), np.float32).T[:2],
    ],
)
def test_other_vectors_are_refused(wrong):
    with pytest.raises(ValueError, match="among vectors of 4 float32"):
        products(wrong)


def test_parts_of_products_add_up():
    given = rows(5, 700)
    between = products_between(given)
    assert np.array_equal(between(0, 700), products(given))
    assert np.array_equal(between(256, 601), products(np.ascontiguousarray(given[:, 256:601])))
    assert between(0, 300) + between(300, 700) == pytest.approx(products(given), rel=1e-12, abs=1e-12)
    with pytest.raises(ValueError, match="no columns 0 to 701"):
        between(0, 701)


@pytest.mark.parametrize("width", [1, 1023, 1025])
@pytest.mark.parametrize("n", [1, 3, 4, 6])
def test_mixtures(n, width):
    given, shares = rows(n, width), rows(2, n, 1).astype(np.float64)
    assert mixtures(shares, [*given]) == pytest.approx(shares @ given.astype(np.float64), rel=1e-6, abs=1e-6)
    room = np.empty((2, width), np.float32)
    assert mixtures(shares, given, room) is room
    assert np.array_equal(room, mixtures(shares, given))
    with pytest.raises(ValueError, match="no room for 2 mixtures"):
        mixtures(shares, given, room[:1])
    with pytest.raises(ValueError, match="shares of"):
        mixtures(shares[:, 1:], given)
