import numpy as np
import pytest

from shoal.kernels.index_ranges import put_runs, take_runs


def runs_of(marks):
    edges = np.diff(np.concatenate([[0], marks.astype(np.int64), [0]]))
    starts = np.flatnonzero(edges == 1)
    return starts, np.flatnonzero(edges == -1) - starts


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("width", [1, 7, 300])
def test_runs_are_taken_out_and_put_back(width, share):
    rng = np.random.default_rng(width)
    vector, marks = rng.normal(size=width).astype(np.float32), rng.random(width) < share
    some, whole = np.empty(int(marks.sum()), np.float32), np.full(width, 5.0, np.float32)
    take_runs(some, vector, *runs_of(marks))
    assert np.array_equal(some, vector[marks])
    put_runs(whole, some, *runs_of(marks))
    assert np.array_equal(whole, np.where(marks, vector, 0))


def test_what_is_not_finite_stays_so():
    vector, whole = np.array([np.nan, 1, np.inf], np.float32), np.empty(3, np.float32)
    put_runs(whole, vector, np.array([0]), np.array([3]))
    assert np.array_equal(whole, vector, equal_nan=True)


@pytest.mark.parametrize(
    ("starts", "lengths"),
    [([0], [3]), ([0, 1], [2, 2]), ([4], [2]), ([2, 0], [1, 1]), ([-1], [2]), ([0], [])],
)
def test_runs_that_do_not_fit_are_refused(starts, lengths):
    vector, some = np.zeros(5, np.float32), np.zeros(2 * len(lengths), np.float32)
    some = some if lengths != [1, 1] else some[:2]
    runs = np.array(starts, np.int64), np.array(lengths, np.int64)
    with pytest.raises(ValueError, match="do not fit"):
        take_runs(some, vector, *runs)
    with pytest.raises(ValueError, match="do not fit"):
        put_runs(vector, some, *runs)
