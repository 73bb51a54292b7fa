import numpy as np
import pytest

from shoal.kernels.trimming import network, trim_between, trimmed


def plain(rows, trim):
    """Columns sorted one by one."""
    n = len(rows)
    ordered = np.sort(rows, axis=0)[trim : n - trim]
    inside = (rows >= ordered[0]) & (rows <= ordered[-1])
    return ordered.mean(0, dtype=np.float64), (inside / inside.sum(0)).mean(1)


def rows(n, width, kinds, seed=0):
    """Numbers of which many are equal, some in all rows of a column."""
    draw = np.random.default_rng(seed)
    found = draw.normal(size=(n, width)).astype(np.float32)
    if kinds:
        found = draw.choice(np.array(kinds, np.float32), size=(n, width))
        found[:, ::3] = found[0, ::3]
    return found


@pytest.mark.parametrize("width", [1, 7, 127, 128, 129, 400])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 10, 11, 16, 17, 33])
@pytest.mark.parametrize("kinds", [(), (0.0, -0.0, 1.0, -2.0), (1e-42, -1e-42, 3e38, -3e38, 1.5)])
def test_means_have_the_bits_of_sorted_columns(n, width, kinds):
    given = rows(n, width, kinds)
    for trim in {0, (n - 1) // 4, (n - 1) // 2}:
        means, kept = trimmed(given, trim)
        expected, shares = plain(given, trim)
        assert np.array_equal(means, expected)
        assert kept == pytest.approx(shares, rel=1e-12)


@pytest.mark.parametrize("n", range(1, 40))
def test_the_network_sorts(n):
    values = np.random.default_rng(n).integers(0, 2, size=(n, 500))  # zeros and ones are enough
    for low, high in network(n):
        values[low], values[high] = (
            np.minimum(values[low], values[high]),
            np.maximum(values[low], values[high]),
        )
    assert (np.diff(values, axis=0) >= 0).all()


def test_infinities_are_numbers_and_what_is_none_is_the_largest():
    given = np.array([[1, np.inf, np.nan], [2, -np.inf, 5], [9, 4, 7], [3, np.inf, -np.nan]], np.float32)
    means, _ = trimmed(given, 1)
    assert means[:2].tolist() == [2.5, np.inf]
    assert np.isnan(means[2])  # 5 and the second that is no number are dropped
    assert trimmed(given[[0, 1, 2]], 1)[0].tolist() == [2.0, 4.0, 7.0]


@pytest.mark.parametrize("kinds", [(), (0.0, 1.0)])
def test_parts_of_the_columns_add_up(kinds):
    given = rows(7, 300, kinds)
    means, (expected, shares) = np.empty(300), trimmed(given, 2)
    kept = sum(
        trim_between(given, 2, means, first, last) for first, last in ((0, 130), (130, 131), (131, 300))
    )
    assert np.array_equal(means, expected)
    assert kept / 300 == pytest.approx(shares, rel=1e-12)
    with pytest.raises(ValueError, match="columns 0 to 301 of 300"):
        trim_between(given, 2, means, 0, 301)


def test_who_cannot_be_dropped():
    with pytest.raises(ValueError, match="2 of 4 numbers cannot be dropped on each side"):
        trimmed(np.zeros((4, 3), np.float32), 2)
