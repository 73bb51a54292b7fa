import time

import numpy as np
import pytest
from toy import KEY

from shoal.core.population import Spans


def some(ids):
    return Spans.of(ids)


@pytest.mark.parametrize("ids", [[], [0], [3, 4, 5], [1, 2, 5, 9, 10], range(2, 9), range(0), range(1, 9, 3)])
def test_spans_are_a_sequence_of_their_ids(ids):
    spans, ids = some(ids), list(ids)
    assert list(spans) == ids
    assert len(spans) == len(ids)
    assert [spans[i] for i in range(-len(ids), len(ids))] == ids + ids
    assert spans[1:3] == tuple(ids[1:3])
    assert [client for client in range(-1, 12) if client in spans] == ids
    assert "1" not in spans
    with pytest.raises(IndexError):
        spans[len(ids)]


def test_what_two_have_in_common():
    rng = KEY.numpy()
    for _ in range(50):
        one, other = (np.flatnonzero(rng.random(30) < rng.random()).tolist() for _ in range(2))
        assert list(some(one).common(some(other))) == sorted(set(one) & set(other))


def test_a_billion_ids_cost_what_their_ranges_cost():
    started = time.perf_counter()
    spans = some(range(10**9)).common(Spans(np.array([5, 10**8]), np.array([9, 10**9])))
    assert len(spans) == 4 + 9 * 10**8
    assert spans[-1] == 10**9 - 1
    assert spans[4] == 10**8
    assert 10**8 - 1 not in spans
    assert time.perf_counter() - started < 0.1
