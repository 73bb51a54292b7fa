import multiprocessing

import pytest


@pytest.fixture
def no_process_left():
    """What the test starts has ended after it. An earlier test's engine may still wait for its finalizer."""
    before = set(multiprocessing.active_children())
    yield
    assert set(multiprocessing.active_children()) <= before
