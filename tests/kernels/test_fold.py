from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.kernels import fold


def problem(n, params, seed=0):
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(n, params)).astype(np.float32)
    return generator.normal(size=params), rows, generator.uniform(0, 100, n)


def bits(array):
    return array.view(np.int64)


def one_by_one(acc, rows, weights):
    acc = acc.copy()
    for row, weight in zip(rows, weights):
        acc += weight * row.astype(np.float64)
    return acc


@pytest.mark.parametrize("params", [1, 7, 8192, 8193, 20_001])
@pytest.mark.parametrize("n", [0, 1, 3, 4, 5, 11])
def test_the_sum_is_rounded_after_every_product_and_every_addition(n, params):
    acc, rows, weights = problem(n, params)
    expected = one_by_one(acc, rows, weights)
    fold.weighted_sum(acc, rows, weights)
    assert np.array_equal(bits(acc), bits(expected))


@given(st.lists(st.integers(0, 13), max_size=4), st.integers(0, 300), st.integers(0, 300))
def test_the_bits_do_not_depend_on_how_the_work_is_split(cuts, first, second):
    acc, rows, weights = problem(13, 300)
    expected = one_by_one(acc, rows, weights)
    edges = [0, *sorted(cuts), 13]
    columns = [0, *sorted([first, second]), 300]
    for begin, end in pairwise(edges):
        for left, right in pairwise(columns):
            fold.weighted_sum(acc, rows[begin:end], weights[begin:end], left, right)
    assert np.array_equal(bits(acc), bits(expected))


def test_what_is_not_finite_stays_so():
    acc, rows, weights = problem(5, 40)
    rows[1, 3], rows[2, 4] = np.inf, np.nan
    fold.weighted_sum(acc, rows, weights)
    assert np.flatnonzero(~np.isfinite(acc)).tolist() == [3, 4]


@pytest.mark.parametrize(
    ("rows", "weights", "last"), [((3, 10), 2, None), ((3, 9), 3, None), ((3, 10), 3, 11)]
)
def test_shapes_that_do_not_fit_are_refused(rows, weights, last):
    with pytest.raises(ValueError, match="do not fit"):
        fold.weighted_sum(np.zeros(10), np.zeros(rows, np.float32), np.zeros(weights), 0, last)


LARGEST = np.finfo(np.float32).max


@pytest.mark.parametrize("strange", [np.inf, -np.inf, np.nan, -np.nan])
@pytest.mark.parametrize("place", [0, 1, 63, 64, 998])
@pytest.mark.parametrize("usual", [LARGEST, -LARGEST, np.finfo(np.float32).smallest_subnormal])
def test_numbers_that_are_not_finite_are_found(strange, place, usual):
    values = np.full(999, usual, np.float32)
    assert fold.all_within(values, LARGEST)
    values[place] = strange
    assert not fold.all_within(values, LARGEST)


@pytest.mark.parametrize("place", [0, 1, 63, 64, 998])
@pytest.mark.parametrize("limit", [1.5, 1e19])
def test_numbers_beyond_the_limit_are_found(place, limit):
    limit = np.float32(limit)
    values = np.full(999, -limit)
    values[::2] = limit
    assert fold.all_within(values, limit)
    for sign in (1, -1):
        values[place] = sign * np.nextafter(limit, np.float32(np.inf))
        assert not fold.all_within(values, limit)


def test_no_numbers_are_all_within():
    assert fold.all_within(np.zeros(0, np.float32), 0.0)


@pytest.mark.parametrize("params", [0, 1, 20_001])
def test_what_a_client_was_sent_counts_with_the_roundings_of_doubles(params):
    acc, (value, sent, update), _ = problem(3, params)
    expected = acc + 0.3 * ((sent.astype(np.float64) - value) + update)
    fold.add_offset(acc, value, sent, update, 0.3)
    assert np.array_equal(bits(acc), bits(expected))


@pytest.mark.parametrize("wrong", range(3))
@pytest.mark.parametrize("length", [0, 8, 639, 641])
def test_offsets_of_another_length_are_refused_and_change_nothing(wrong, length):
    acc, rows, _ = problem(3, 640)
    before, parts = acc.copy(), list(rows)
    parts[wrong] = np.ones(length, np.float32)
    with pytest.raises(ValueError, match="must be as many"):
        fold.add_offset(acc, *parts, 0.3)
    assert np.array_equal(bits(acc), bits(before))


def test_eight_numbers_do_not_go_into_640_sums():
    acc, _, _ = problem(1, 640)
    before, short = acc.copy(), np.ones((3, 8), np.float32)
    with pytest.raises(ValueError, match="must be as many"):
        fold.add_offset(acc, *short, 0.3)
    assert np.array_equal(bits(acc), bits(before))


@pytest.mark.parametrize("params", [0, 1, 7, 20_001])
def test_four_rows_at_once_have_the_bits_of_one_after_another(params):
    acc, rows, weights = problem(4, params)
    expected = one_by_one(acc, rows, weights)
    fold.add_four(acc, *rows, weights)
    assert np.array_equal(bits(acc), bits(expected))


def test_four_rows_must_fit():
    acc, rows, weights = problem(4, 8)
    for bad in ([*rows[:3], rows[3][:5]], [rows[0][:5], *rows[1:]]):
        with pytest.raises(ValueError, match="do not fit"):
            fold.add_four(acc, *(np.ascontiguousarray(row) for row in bad), weights)


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 1001])
def test_the_sum_of_squares(size):
    values = np.random.default_rng(size).normal(size=size).astype(np.float32)
    assert fold.sum_of_squares(values) == pytest.approx((values.astype(np.float64) ** 2).sum(), rel=1e-14)


@pytest.mark.parametrize("params", [1, 511, 512, 1300])
@pytest.mark.parametrize("n", [1, 4, 7])
def test_a_sum_and_how_far_each_row_goes_along(n, params):
    acc, rows, weights = problem(n, params)
    first, last = params // 3, params
    expected = one_by_one(acc, rows, weights)
    expected[:first] = acc[:first]
    along = fold.weighted_sum_along(acc, rows, weights, first, last)
    assert np.array_equal(bits(acc), bits(expected))
    sums = np.vstack([rows.astype(np.float64)[:, first:], acc[None, first:]]) @ acc[first:]
    assert along == pytest.approx(sums, rel=1e-12, abs=1e-9)


def test_rows_of_another_length_have_no_sum():
    with pytest.raises(ValueError, match="do not fit"):
        fold.weighted_sum_along(np.zeros(10), np.zeros((3, 9), np.float32), np.zeros(3), 0, 9)


def test_rows_may_be_parts_of_longer_ones():
    rng = np.random.default_rng(4)
    whole, weights = rng.normal(size=(7, 50)).astype(np.float32), rng.random(7)
    found, expected = np.ones(20), np.ones(20)
    fold.weighted_sum(found, whole[:, 13:33], weights)
    fold.weighted_sum(expected, whole[:, 13:33].copy(), weights)
    assert (found == expected).all()
    with pytest.raises(ValueError, match="rows must be contiguous"):
        fold.weighted_sum(np.zeros(10), whole[:, ::5], weights)


def test_a_fresh_sum_does_not_count_what_was_there():
    rows, weights = np.ones((3, 9000), np.float32), np.array([1.0, 2.0, 4.0])
    acc = np.full(9000, np.nan)
    fold.weighted_sum(acc, rows, weights, 0, 9000, fresh=True)
    assert (acc == 7).all()


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("params", [1, 7, 4097])
@pytest.mark.parametrize("n", [0, 1, 4, 7])
def test_changes_of_control_variates_are_rounded_like_those_that_are_written_down(n, params, fresh):
    acc, rows, weights = problem(n, params)
    paces, (_, common, _) = weights.astype(np.float32), problem(1, params, seed=1)
    expected = one_by_one(0 * acc if fresh else acc, -(rows * paces[:, None]) - common[0], np.ones(n))
    fold.control_sum(acc, rows, paces, common[0], fresh=fresh)
    assert np.array_equal(acc, expected)


@pytest.mark.parametrize(("rows", "paces", "common"), [((3, 10), 2, 10), ((3, 9), 3, 10), ((3, 10), 3, 9)])
def test_control_variates_of_another_length_have_no_sum(rows, paces, common):
    with pytest.raises(ValueError, match="do not fit"):
        fold.control_sum(
            np.zeros(10),
            np.zeros(rows, np.float32),
            np.zeros(paces, np.float32),
            np.zeros(common, np.float32),
        )
