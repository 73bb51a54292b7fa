import torch
from hypothesis import given
from hypothesis import strategies as st
from toy import KEY

from shoal.core.data import Batching, schedule


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 3))
def test_every_epoch_visits_every_sample_once(count, batch, epochs):
    steps = schedule(count, Batching(batch, epochs), KEY, full=False)
    per_epoch = -(-count // batch)
    assert len(steps) == epochs * per_epoch
    for epoch in range(epochs):
        visited = torch.cat(steps[epoch * per_epoch : (epoch + 1) * per_epoch])
        assert sorted(visited.tolist()) == list(range(count))
        assert all(len(step) == batch for step in steps[epoch * per_epoch : (epoch + 1) * per_epoch - 1])


@given(st.integers(1, 40), st.integers(1, 12))
def test_full_batches_are_all_of_one_size(count, batch):
    steps = schedule(count, Batching(batch, 1), KEY, full=True)
    assert {len(step) for step in steps} == {batch}
    assert set(torch.cat(steps).tolist()) == set(range(count))


def test_epochs_differ_and_keys_decide():
    first = schedule(30, Batching(30, 2), KEY, full=False)
    assert not torch.equal(first[0], first[1])
    assert torch.equal(first[0], schedule(30, Batching(30, 2), KEY, full=False)[0])
    assert not torch.equal(first[0], schedule(30, Batching(30, 2), KEY.fold(1), full=False)[0])
