import multiprocessing

import pytest


@pytest.fixture
def no_process_left():
    """What the test starts has ended after it, whatever an earlier test has left."""
    before = set(multiprocessing.active_children())
    yield
    assert set(multiprocessing.active_children()) <= before
