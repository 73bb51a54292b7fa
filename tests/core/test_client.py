"""What a client does when it is asked, and when it cannot."""

import numpy as np
import pytest
import torch
from toy import KEY, setup

from shoal import Dataset
from shoal.core.data import Batching, schedule
from shoal.core.engine import Work
from shoal.core.types import Cohort, Moment
from shoal.loop import advance, start


def uneven() -> Dataset:
    """Three sites of 1, 12 and 40 samples, and one of none in training."""
    groups = np.repeat([0, 1, 2], [1, 12, 40])
    x = torch.from_numpy(KEY.numpy().normal(size=(53, 10)).astype(np.float32))
    y = torch.arange(53) % 4
    return Dataset("uneven", x, y, x, y, 4, groups, groups)


def sites(norm, **changes):
    task = {"dataset": f"{__name__}:uneven", "model": "toy:net", "norm": norm}
    return setup(task=task, partition="natural", selector="all", **changes)


@pytest.mark.parametrize("mode", ["serial", "block", "workers"])
def test_who_cannot_train_batch_norm_is_left_out_with_the_reason(mode):
    made = sites("batch", engine={"mode": mode, "workers": 2})
    progress, record = advance(made.federation, start(made.federation))
    made.federation.engine.close()
    assert record.rejected == ((0, "it holds 1 sample; a model with BatchNorm needs two"),)
    assert sorted(record.cohort) == [0, 1, 2]
    variance = progress.state.model.buffers["1.running_var"]
    assert float(variance.min()) > 0.1  # one sample has a variance of 0, and would pull it there


def test_without_batch_norm_one_sample_is_enough():
    made = sites("none")
    assert advance(made.federation, start(made.federation))[1].rejected == ()


@pytest.mark.parametrize("batch", [5, 64, 2000])
def test_no_batch_is_larger_than_what_a_client_holds(batch):
    """With BatchNorm every batch is full, but of the client's own samples, each at most twice an epoch."""
    counts = np.array([10, 160, 2])
    words = KEY.fold_many("client", np.arange(3), "batches")
    plan = schedule(counts, Batching(batch, 3), words, full=True)
    sizes = np.diff(plan.step_ptr)
    first = np.cumsum(counts) - counts
    for client, count in enumerate(counts):
        steps = slice(plan.client_ptr[client], plan.client_ptr[client + 1])
        assert set(sizes[steps]) == {min(batch, count)}
        begin, end = plan.step_ptr[plan.client_ptr[client]], plan.step_ptr[plan.client_ptr[client + 1]]
        seen = np.bincount(plan.order[begin:end] - first[client], minlength=count)
        assert seen.min() >= 3
        assert seen.max() <= 6
        if batch >= count:
            assert set(seen) == {3}


def test_a_client_without_samples_says_so():
    made = setup()
    shards = made.shards
    empty = shards.offsets.copy()
    empty[1] = 0  # client 0 holds nothing, client 1 its samples too
    object.__setattr__(shards, "offsets", empty)
    federation = made.federation
    state, cohort = start(federation).state, Cohort((1, 0), {}, 8)
    message = federation.method.dispatch(federation.task, state, cohort, Moment(0, 0, True, KEY))
    for mode in ("serial", "block"):
        engine = type(federation.engine)(made.side, shards, mode)
        found = list(engine.exchange(Work("update", 0, 0, {}), cohort, message, KEY))
        assert [delivery.reason for delivery in found] == ["", "it holds no samples"]
