"""The memory of a worker process over many rounds."""

import resource
from pathlib import Path

import pytest
from toy import setup

from shoal.loop import advance, start
from shoal.runs.runner import one_thread

SETTLED, LATER = 20, 80  # rounds
SPARE = 1  # MB
IMAGES = {"dataset": "toy:stripes", "model": "toy:small_cnn"}


def resident_mb(process):
    """What a process holds in memory."""
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_a_worker_that_trains_convolutions_does_not_grow(method):
    made = setup(method, task=IMAGES, engine={"mode": "workers", "workers": 2})
    engine, held = made.federation.engine, {}
    with one_thread():
        progress = start(made.federation)
        for done in range(1, LATER + 1):
            progress, _ = advance(made.federation, progress)
            if done in (SETTLED, LATER):
                held[done] = [resident_mb(worker.process) for worker in engine._auto.runner.workers]
        engine.close()
    assert all(later < settled + SPARE for settled, later in zip(*held.values(), strict=True)), held
