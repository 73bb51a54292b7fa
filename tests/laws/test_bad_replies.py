"""Three kinds of bad reply, end to end, for every method: each is as good as no reply, to the bit."""

from functools import cache

import pytest
from bad_replies import ANY_METHOD, lost, round_with
from toy import NORMED, same

from shoal.methods import METHODS


def task_of(method):
    norm = "batch" if (method, "batch") in NORMED else "none"
    return {"dataset": "toy:blobs", "model": "toy:net", "norm": norm}


@cache
def absent(method):
    progress, record = round_with(lost, method, task=task_of(method))
    return progress.state, progress.accepted, record.metrics


@pytest.mark.parametrize("kind", ANY_METHOD)
@pytest.mark.parametrize("method", METHODS)
def test_a_bad_reply_is_as_good_as_none(method, kind):
    progress, record = round_with(lambda delivery: [ANY_METHOD[kind](delivery)], method, task=task_of(method))
    assert {client for client, _ in record.rejected} == {record.cohort[0]}
    assert same((progress.state, progress.accepted), absent(method)[:2])
    assert str(record.metrics) == str(absent(method)[2])  # nan is not equal to itself
