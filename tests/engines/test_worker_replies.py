"""Replies of worker processes: when clients are assigned, and what becomes of replies that are kept."""

import copy

import pytest
from toy import BATCH_NORM, KEY, same, setup

from shoal.core.engine import Work
from shoal.core.flat import Flat
from shoal.core.types import Cohort, Moment
from shoal.engines import worker_pool
from shoal.loop import start

COHORT = Cohort((7, 6, 5, 4, 3, 2, 1, 0), {}, 8)


def replies(mode):
    """Each as it was on arrival, and as it is when all have arrived."""
    federation = setup("fedavg", task=BATCH_NORM, engine={"mode": mode, "workers": 2}).federation
    message = federation.method.dispatch(
        federation.task, start(federation).state, COHORT, Moment(0, 0, True, KEY)
    )
    kept, copies = [], []
    for delivery in federation.engine.exchange(Work("update", 0, 0, {}), COHORT, message, federation.key):
        kept.append(delivery.reply)
        copies.append(copy.deepcopy(delivery.reply))
    federation.engine.close()
    return kept, copies


@pytest.mark.parametrize(("quick", "most"), [(0.0, 1), (1e9, 2)])
def test_only_quick_clients_are_assigned_before_a_worker_is_free(quick, most, monkeypatch):
    """`most` clients of a worker are unanswered at a time, once it is known how long they take."""
    unanswered = []
    send = worker_pool.Exchange._send

    def noted(self, worker, position):
        send(self, worker, position)
        unanswered.append(len(self._unanswered(worker)))

    monkeypatch.setattr(worker_pool, "QUICK", quick)
    monkeypatch.setattr(worker_pool.Exchange, "_send", noted)
    kept, _ = replies("workers")
    assert max(unanswered) == most
    assert same(kept, replies("serial")[0])


def test_a_reply_that_is_kept_stays_as_it_arrived():
    kept, copies = replies("workers")
    assert len(kept) == len(COHORT.ids)
    assert same(kept, copies)
    assert same(kept, replies("serial")[0])


def test_a_model_lies_in_one_vector_and_what_are_numbers_stay_a_dict():
    for reply in replies("workers")[0]:
        update = reply.payload.update
        assert type(update.params) is Flat
        assert update.params.vector.is_contiguous()
        assert any(not value.is_floating_point() for value in update.buffers.values())  # so not in one vector
        assert type(reply.metrics) is dict
