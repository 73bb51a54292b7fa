import numpy as np
import pytest

from shoal.kernels.extremes import comparison, extremes, importance


def first_of_the_smallest(keys, count):
    return np.sort(np.argsort(keys, kind="stable")[:count])


@pytest.mark.parametrize(("size", "count"), [(1, 1), (7, 3), (10, 5), (10, 10), (5000, 50), (5000, 2500)])
@pytest.mark.parametrize("kinds", [1, 2, 5, 10**9])
def test_the_largest_and_the_smallest(size, count, kinds):
    values = np.floor(kinds * np.random.default_rng(size + count).random(size)).astype(np.float32)
    most, least = extremes(values, count)
    assert most.tolist() == first_of_the_smallest(-values, count).tolist()
    assert least.tolist() == first_of_the_smallest(values, count).tolist()


@pytest.mark.parametrize("zeros", [0.005, 0.3, 0.995])
def test_numbers_that_a_sample_does_not_show(zeros):
    draw = np.random.default_rng(1)
    values = (draw.random(20_000) ** 9).astype(np.float32)
    values[draw.random(20_000) < zeros] = 0
    values[5::9] = 0.5  # every ninth is looked at, and the others differ
    for count in (1, 20, 200, 5000):
        most, least = extremes(values, count)
        assert most.tolist() == first_of_the_smallest(-values, count).tolist()
        assert least.tolist() == first_of_the_smallest(values, count).tolist()


@pytest.mark.parametrize("count", [0, 4])
def test_more_than_there_are_cannot_be_chosen(count):
    with pytest.raises(ValueError, match=f"{count} of 3 numbers"):
        extremes(np.ones(3, np.float32), count)


def test_importance_is_that_of_the_ranges():
    change, start = np.random.default_rng(2).normal(size=(2, 50)).astype(np.float32)
    found = np.empty(13, np.float32)
    importance(change, start, np.array([[3, 10], [40, 46]]), found)
    expected = np.abs(change * (start + change))
    assert found.tolist() == [*expected[3:10], *expected[40:46]]


def test_what_two_choices_have_in_common():
    draw = np.random.default_rng(3)
    places = np.stack([np.sort(draw.choice(300, 100, replace=False)) for _ in range(3)])
    values, pairs = draw.random((3, 100)), np.array([[0, 1], [2, 1], [1, 1]])
    for (i, j), (common, correlation) in zip(pairs, comparison(places, values)(pairs), strict=True):
        both, here, there = np.intersect1d(places[i], places[j], return_indices=True)
        assert common == len(both)
        assert correlation == pytest.approx(np.corrcoef(values[i][here], values[j][there])[0, 1])


def test_no_correlation_without_two_that_differ():
    places = np.array([[1, 4, 9], [0, 4, 8], [1, 4, 8], [0, 2, 3], [1, 4, 9]])
    values = np.array([[2.0, 2, 3], [1, 2, 3], [1, 2, 3], [1, 2, 3], [1, 1, 0]])
    found = comparison(places, values)(np.array([[0, 1], [0, 2], [0, 3], [0, 4]]))
    assert found.tolist() == [[1, 0], [2, 0], [0, 0], [3, -1]]  # second: the same number twice


@pytest.mark.parametrize("pair", [[0, 2], [-1, 0]])
def test_choices_that_do_not_exist_cannot_be_compared(pair):
    with pytest.raises(ValueError, match="pairs of 2 choices"):
        comparison(np.zeros((2, 1), np.int64), np.zeros((2, 1)))(np.array([pair]))


def test_a_choice_needs_places_that_can_be():
    for places, reason in (([[-1, 2]], "at the place -1"), ([[1, 2, 3]], r"numbers at \(1, 3\) places")):
        with pytest.raises(ValueError, match=reason):
            comparison(np.array(places), np.zeros((1, 2)))
