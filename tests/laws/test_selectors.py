"""Laws that every selector of the catalogue keeps."""

import pytest
from toy import KEY

from shoal.core.types import Reply
from shoal.selectors import SELECTORS


@pytest.mark.parametrize("name", SELECTORS)
@pytest.mark.parametrize("available", [range(1), range(20), (3, 5, 9, 100), range(7, 1000, 3)])
def test_only_available_clients_none_twice_same_key_same_cohort(name, available):
    selector = SELECTORS[name]()
    state = selector.init()
    for draw in range(5):
        cohort = selector.select(state, available, KEY.fold(draw))
        assert cohort.ids
        assert len(set(cohort.ids)) == len(cohort.ids)
        assert set(cohort.ids) <= set(available)
        assert cohort.population == len(available)
        assert all(len(values) == len(cohort.ids) for values in cohort.settings.values())
        assert cohort == selector.select(state, available, KEY.fold(draw))
        for client in cohort.ids:
            state = selector.observe(state, client, Reply((), None, {}), 0.1)
