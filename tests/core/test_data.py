from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from toy import KEY

from shoal.core.data import Batching, schedule


def steps_of(counts, batching, key=KEY, full=False):
    words = np.stack([key.fold("client", c).array for c in range(len(counts))])
    plan = schedule(np.array(counts), batching, words, full=full)
    steps = np.split(plan.order, plan.step_ptr[1:-1])
    return [steps[a:b] for a, b in pairwise(plan.client_ptr.tolist())]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=4), st.integers(1, 12), st.integers(1, 3))
def test_every_epoch_visits_every_sample_once(counts, batch, epochs):
    first = 0
    for count, steps in zip(counts, steps_of(counts, Batching(batch, epochs)), strict=True):
        per_epoch = -(-count // batch)
        assert len(steps) == epochs * per_epoch
        for epoch in range(epochs):
            mine = steps[epoch * per_epoch : (epoch + 1) * per_epoch]
            assert sorted(np.concatenate(mine).tolist()) == list(range(first, first + count))
            assert all(len(step) == batch for step in mine[:-1])
        first += count


@given(st.lists(st.integers(1, 40), min_size=1, max_size=4), st.integers(1, 12))
def test_full_batches_are_all_of_one_size(counts, batch):
    """As large as the client's samples allow."""
    first = 0
    for count, steps in zip(counts, steps_of(counts, Batching(batch, 2), full=True), strict=True):
        assert {len(step) for step in steps} == {min(batch, count)}
        assert set(np.concatenate(steps).tolist()) == set(range(first, first + count))
        first += count


def test_a_clients_order_does_not_depend_on_its_company():
    alone = schedule(np.array([9]), Batching(4, 2), KEY.fold("client", 1).array[None], full=False)
    _, second = steps_of([30, 9], Batching(4, 2))
    assert [step.tolist() for step in second] == [
        (alone.order[a:b] + 30).tolist() for a, b in pairwise(alone.step_ptr.tolist())
    ]


def test_epochs_differ_and_keys_decide():
    (first,) = steps_of([30], Batching(30, 2))
    assert first[0].tolist() != first[1].tolist()
    assert first[0].tolist() == steps_of([30], Batching(30, 2))[0][0].tolist()
    assert first[0].tolist() != steps_of([30], Batching(30, 2), KEY.fold(1))[0][0].tolist()
