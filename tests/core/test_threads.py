import threading

import numpy as np
import pytest

from shoal.core.threads import parallel_map, ranges


@pytest.mark.parametrize("threads", [1, 2, 5, None])
def test_results_come_in_the_order_of_the_items(threads):
    assert parallel_map(lambda item: item * item, range(20), threads) == [i * i for i in range(20)]
    assert parallel_map(str, [], threads) == []


def test_threads_work_side_by_side():
    """Each waits for the other: one thread alone would never get on."""
    parallel_pair = threading.Barrier(2, timeout=30)
    assert sorted(parallel_map(lambda _: parallel_pair.wait(), [0, 1], 2)) == [0, 1]


@pytest.mark.parametrize("threads", [2, 3])
def test_work_may_itself_be_shared(threads):
    """What waits for other work must not take the only thread that this could have."""

    def sums(item):
        return sum(parallel_map(lambda inner: item * inner, range(5), threads))

    assert parallel_map(sums, range(4), threads) == [0, 10, 20, 30]


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_is_the_callers(threads):
    def refuse(item):
        if item == 7:
            raise ValueError("seven")
        return item

    with pytest.raises(ValueError, match="seven"):
        parallel_map(refuse, range(9), threads)


@pytest.mark.parametrize(
    ("work", "threads", "expected"),
    [
        ([1e7] * 4, 2, [(0, 1), (1, 2), (2, 3), (3, 4)]),
        ([1e7, 4e7, 2e7], 2, [(1, 2), (2, 3), (0, 1)]),  # the longest first
        ([1.0] * 10, 2, [(0, 5), (5, 10)]),  # too short to be split further
        ([1.0] * 10, 3, [(3, 7), (0, 3), (7, 10)]),
        ([0.0, 0.0, 5.0], 2, [(2, 3), (0, 2)]),
    ],
)
def test_threads_take_ranges_of_equal_work(work, threads, expected):
    assert ranges(np.array(work), threads) == expected
