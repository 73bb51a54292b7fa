"""Laws that every selector of the catalogue keeps."""

import numpy as np
import pytest
import torch
from toy import KEY

from shoal.core.data import NO_PLAN, Data
from shoal.core.types import ModelUpdate, Moment, Reply, Weights
from shoal.selectors import SELECTORS

EVERY = pytest.mark.parametrize("name", SELECTORS)
AVAILABLE = pytest.mark.parametrize("available", [range(1), range(20), (3, 5, 9, 100), range(7, 400, 3)])


def holding(count):
    """The data of a client with so many samples."""
    return Data(torch.zeros(count, 2), torch.zeros(count), np.arange(count), NO_PLAN, 2)


@EVERY
@AVAILABLE
@pytest.mark.parametrize("reply", ["nothing", "update"])
@pytest.mark.parametrize("profiled", [False, True])
def test_only_available_clients_none_twice_same_key_same_cohort(name, available, reply, profiled):
    selector = SELECTORS[name]()
    state = selector.init()
    if profiled:
        profiles = {client: selector.profile(holding(1 + client % 7)) for client in available}
        state = selector.admit(state, profiles)
    for draw in range(4):
        cohort = selector.select(state, available, {}, Moment(draw, 0, False, KEY.fold(draw)))
        assert cohort.ids
        assert len(set(cohort.ids)) == len(cohort.ids)
        assert set(cohort.ids) <= set(available)
        assert cohort.population == len(available)
        assert all(len(values) == len(cohort.ids) for values in cohort.settings.values())
        assert cohort == selector.select(state, available, {}, Moment(draw, 0, False, KEY.fold(draw)))
        for client in cohort.ids:
            update = Weights({"w": KEY.fold(client, draw).uniform((3,))}, {})
            payload = () if reply == "nothing" else ModelUpdate(update)
            state = selector.observe(state, client, Reply(payload, None, {}), 0.1)
