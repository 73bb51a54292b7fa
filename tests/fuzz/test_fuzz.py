"""A little of `make fuzz`, for every reader of what comes from outside."""

import pytest
from fuzz.run import fuzz
from fuzz.targets import TARGETS


@pytest.mark.parametrize("target", TARGETS)
def test_readers_raise_nothing_but_their_own_errors(target):
    assert fuzz(target, seed=7, count=30 if target == "spec" else 200) >= 30
