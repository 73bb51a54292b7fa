import threading

import pytest

from shoal.core.threads import side_by_side


@pytest.mark.parametrize("threads", [1, 2, 5, None])
def test_results_come_in_the_order_of_the_items(threads):
    assert side_by_side(lambda item: item * item, range(20), threads) == [i * i for i in range(20)]
    assert side_by_side(str, [], threads) == []


def test_threads_work_side_by_side():
    """Each waits for the other: one thread alone would never get on."""
    both = threading.Barrier(2, timeout=30)
    assert sorted(side_by_side(lambda _: both.wait(), [0, 1], 2)) == [0, 1]


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_is_the_callers(threads):
    def refuse(item):
        if item == 7:
            raise ValueError("seven")
        return item

    with pytest.raises(ValueError, match="seven"):
        side_by_side(refuse, range(9), threads)
