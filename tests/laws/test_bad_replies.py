"""Three kinds of bad reply for every method, end to end: each is as good as no reply, to the bit."""

import pytest
from bad_replies import ANY_METHOD, lost, round_with
from toy import hardest_task, same

from shoal.methods import METHODS


@pytest.mark.parametrize("method", METHODS)
def test_a_bad_reply_is_as_good_as_none(method):
    absent, without = round_with(lost, method, task=hardest_task(method))
    for kind, tamper in ANY_METHOD.items():
        progress, record = round_with(lambda d, tamper=tamper: [tamper(d)], method, task=hardest_task(method))
        refused = {client for client, _ in record.rejected}
        assert refused == {client for client, _ in without.rejected}, kind  # the first reply of each leg
        assert record.cohort[0] in refused, kind
        assert same((progress.state, progress.accepted), (absent.state, absent.accepted)), kind
        assert str(record.metrics) == str(without.metrics), kind  # nan is not equal to itself
